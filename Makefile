# Everything happens in .venv, which the first target that needs it makes.

# Override with e.g. PYTHON=python3.12: .venv is then made again.
PYTHON ?= python3
# More arguments for pytest, the demo or the benchmarks, e.g. ARGS="-x -k settle"
ARGS ?=
# The interpreters of `make package`, e.g. PYTHONS="python3.12 python3.13"; .venv's, if none is said
PYTHONS ?=
# How long `make soak` runs
MINUTES ?= 60
# The supported PySpark that is not in .venv
COMPAT_PYSPARK ?= $(if $(wildcard .venv/lib/python3*/site-packages/pyspark-4.2.*),4.3.0,4.2.0)

INSTALLED = .venv/.installed-$(notdir $(PYTHON))
COMPAT_INSTALLED = .venv-compat/.installed-$(notdir $(PYTHON))-$(COMPAT_PYSPARK)
CONNECT_INSTALLED = .venv-connect/.installed-$(notdir $(PYTHON))
SAIL_INSTALLED = .venv-sail/.installed-$(notdir $(PYTHON))
UPSERTS_INSTALLED = .venv-upserts/.installed-$(notdir $(PYTHON))
# Benchmarks run on PySpark 4.2, the newest that a Kafka connector is published for, whichever of the two has it.
BENCH_VENV = $(if $(filter 4.2.%,$(COMPAT_PYSPARK)),.venv-compat,.venv)
BENCH_INSTALLED = $(if $(filter .venv,$(BENCH_VENV)),$(INSTALLED),$(COMPAT_INSTALLED))

# Spark takes python3 from PATH where nothing else is said, and that one does not know this package.
export PYSPARK_PYTHON = $(CURDIR)/.venv/bin/python
unexport PYSPARK_DRIVER_PYTHON SPARK_HOME
# Spark starts Python processes by the dozen: as with what pip installs, each finds the package compiled.
unexport PYTHONDONTWRITEBYTECODE
# All sessions here are local ones.
export SPARK_LOCAL_IP = 127.0.0.1
export JAVA_HOME
WITH_JAVA = JAVA_HOME=$$(scripts/find_java.sh) &&

.DEFAULT_GOAL := help
.PHONY: help install java docs docs-serve demo classes test test-fast test-long test-models test-docs test-compat test-connect test-sail test-upserts test-object-stores test-cluster-bucket test-nfs test-hdfs test-kafka test-ui test-nemesis mutants soak check package bench bench-quick bench-check bench-object-store bench-object-latency bench-collecting bench-replicas bench-root-loss bench-peers clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

# ---- set up ----

install: java $(INSTALLED) ## Set everything up: Java where it is missing, .venv, this package and its tools

java:
	@scripts/install_java.sh >/dev/null

$(INSTALLED): setup.cfg
	$(call make_venv,.venv,dev,)

$(COMPAT_INSTALLED): setup.cfg
	$(call make_venv,.venv-compat,dev,pyspark==$(COMPAT_PYSPARK))

$(CONNECT_INSTALLED): setup.cfg
	$(call make_venv,.venv-connect,dev$(comma)connect,)

$(SAIL_INSTALLED): setup.cfg
	$(call make_venv,.venv-sail,dev$(comma)sail,)

$(UPSERTS_INSTALLED): setup.cfg
	$(call make_venv,.venv-upserts,dev$(comma)upserts,)

comma = ,
# $(1) the directory, $(2) extras, $(3) a further requirement
define make_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "This needs Python 3.11 or newer, and $(PYTHON) is not: install one, or name it, as in: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(install_venv_module); } >&2 || { \
	echo "$(PYTHON) cannot make virtual environments: apt-get install $(venv_package)" >&2; exit 1; }
$(PYTHON) -m venv --clear $(1)
@echo "Installing into $(1); PySpark is a large download."
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[$(2)]' $(3)
@touch $@
endef

# Debian and Ubuntu ship Python without it.
venv_package = $(shell $(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])' 2>/dev/null)
as_root = $(shell test "$$(id -u)" = 0 || echo sudo -n)
install_venv_module = command -v apt-get >/dev/null && $(as_root) true 2>/dev/null && $(as_root) apt-get update -qq && \
	$(as_root) env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(venv_package)

# ---- use ----

demo: export SPARK_CONF_DIR = $(CURDIR)/spark-conf
demo: install ## See it work: a topic written, read and replayed
	$(WITH_JAVA) .venv/bin/python examples/demo.py $(ARGS)

bench bench-quick bench-check bench-peers bench-replicas: export PYSPARK_PYTHON = $(CURDIR)/$(BENCH_VENV)/bin/python
bench bench-quick bench-check bench-replicas: export SPARK_CONF_DIR = $(CURDIR)/spark-conf

bench: java $(BENCH_INSTALLED) ## Measure against peers and floors, on PySpark 4.2 (what and how: benchmarks/)
	$(WITH_JAVA) $(PYSPARK_PYTHON) benchmarks/run.py $(ARGS)

bench-quick: java $(BENCH_INSTALLED) ## Measure the main rows, in a few minutes
	$(WITH_JAVA) $(PYSPARK_PYTHON) benchmarks/run.py --quick $(ARGS)

bench-check: java $(BENCH_INSTALLED) ## Measure the main rows in full, and report ratios below those in benchmarks/results
	$(WITH_JAVA) $(PYSPARK_PYTHON) benchmarks/check.py $(ARGS)

bench-object-store: install ## Measure an object store through the log next to bare requests and to Spark's S3A, on versitygw (installs it; needs Go)
	scripts/install_object_stores.sh versitygw
	$(WITH_JAVA) PYTHONPATH=$(CURDIR) .venv/bin/python benchmarks/object_store.py $(ARGS)

bench-object-latency: install ## Measure how late a record is read from an object store: one writer, one partition, one reader
	scripts/install_object_stores.sh versitygw
	PYTHONPATH=$(CURDIR) .venv/bin/python benchmarks/object_latency.py $(ARGS)

bench-collecting: install ## Measure what collecting adds to commits on an object store
	PYTHONPATH=$(CURDIR) .venv/bin/python benchmarks/collecting.py $(ARGS)

bench-replicas: java $(BENCH_INSTALLED) ## Measure three replicas next to Kafka with three brokers (after make bench-peers)
	$(WITH_JAVA) PYTHONPATH=$(CURDIR) $(PYSPARK_PYTHON) benchmarks/replicas.py $(ARGS)

bench-root-loss: install ## Measure how long topics and groups are away when the root is lost, or hangs, that leads 1,100 of them
	PYTHONPATH=$(CURDIR) .venv/bin/python benchmarks/root_loss.py $(ARGS)
	PYTHONPATH=$(CURDIR) .venv/bin/python benchmarks/root_loss.py --how hangs $(ARGS)
	PYTHONPATH=$(CURDIR) .venv/bin/python benchmarks/root_loss.py --by sync $(ARGS)

bench-peers: java $(BENCH_INSTALLED) $(SAIL_INSTALLED) ## Fetch the peers: Kafka, its connector for Spark and a Python client, Delta, S3A, Sail (Maven, pip)
	$(WITH_JAVA) $(PYSPARK_PYTHON) benchmarks/fetch_peers.py

# ---- document ----

docs: $(INSTALLED) ## Build the manual in build/site; a link or an anchor that leads nowhere fails it
	.venv/bin/python scripts/build_docs.py

docs-serve: $(INSTALLED) ## Serve the manual on this machine, and follow changes of its pages
	.venv/bin/python scripts/build_docs.py --serve

# ---- test ----

# What makes Spark's JVMs start sooner: the first time takes half a minute, and tests go without where it fails.
classes: java $(INSTALLED)
	@$(WITH_JAVA) .venv/bin/python -m tests.support.classes || echo "tests are slower: no archive of Spark's classes" >&2

# Many tests wait for a disk, a child or Spark: two processes take turns; three take as long. A file's tests stay in one of
# them, and files with few tests, which take longest, do not come last.
TWO_AT_A_TIME = --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: export PYTEST_DEBUG_TEMPROOT = $(shell scripts/find_test_directory.sh)
test: install classes ## Run the tests that take seconds
	$(WITH_JAVA) .venv/bin/python -m pytest tests $(TWO_AT_A_TIME) -m 'not nightly and not external' $(ARGS)

# Left out: Spark, and of the rest what is marked slow: operations killed or failing at each step, all
# states of the models, processes that race or are killed, loads of hundreds of topics and consumers.
test-fast: $(INSTALLED) ## Run the tests that need neither Spark nor patience
	.venv/bin/python -m pytest tests --ignore tests/spark $(TWO_AT_A_TIME) -m 'not slow and not nightly and not external' $(ARGS)

# The models first: each scene takes a core, so two at a time. The others wait for disks, children and Spark, and measure some.
test-long: install classes test-models ## Run the tests that take minutes
	$(WITH_JAVA) .venv/bin/python -m pytest tests --ignore tests/model -m 'nightly and not hypothesis and not external' $(ARGS)
	$(WITH_JAVA) .venv/bin/python -m pytest tests -m 'hypothesis and not external' --hypothesis-profile long $(ARGS)

test-models: $(INSTALLED) ## Explore the larger scenes of the models of the protocols
	.venv/bin/python -m pytest tests/model --numprocesses 2 --dist worksteal -m nightly

# `make test` plays some of these, others with the next commit, and none that are nightly.
test-docs: install classes ## Run all pages of the manual, notebooks and examples that need no server and no other package
	$(WITH_JAVA) .venv/bin/python -m pytest tests/unit/test_docs.py tests/unit/test_build_docs.py tests/cli/test_guides.py \
		tests/spark/test_documents.py tests/spark/test_spark_guides.py tests/spark/test_notebook.py tests/spark/test_examples.py \
		tests/spark/test_example_jobs.py tests/spark/test_job_tests.py tests/spark/test_upserts.py tests/spark/test_compact.py \
		tests/groups/test_exactly_once.py --each-turn -m 'not external' $(ARGS)

test-compat: export PYSPARK_PYTHON = $(CURDIR)/.venv-compat/bin/python
test-compat: java $(COMPAT_INSTALLED) ## Run the Spark tests on the other supported PySpark, in .venv-compat
	$(WITH_JAVA) .venv-compat/bin/python -m pytest tests/spark $(TWO_AT_A_TIME) -m 'not nightly' $(ARGS)

test-connect: export PYSPARK_PYTHON = $(CURDIR)/.venv-connect/bin/python
test-connect: java $(CONNECT_INSTALLED) ## Run the Spark Connect tests, in .venv-connect
	$(WITH_JAVA) .venv-connect/bin/python -m pytest tests/connect $(ARGS)

test-sail: $(SAIL_INSTALLED) ## Run the tests on Sail, a Spark Connect server without a JVM, in .venv-sail
	.venv-sail/bin/python -m pytest tests/sail $(ARGS)

test-upserts: export PYSPARK_PYTHON = $(CURDIR)/.venv-upserts/bin/python
test-upserts: java $(UPSERTS_INSTALLED) ## Run the examples of upserts into Postgres and Delta, in .venv-upserts (apt, Maven)
	@scripts/install_postgres.sh
	$(WITH_JAVA) .venv-upserts/bin/python -m pytest tests/upserts $(ARGS)

# Each is started on loopback: versitygw (S3; Go: github.com/versity/versitygw), Azurite (Azure; npm: azurite),
# fake-gcs-server (Google; Go: github.com/fsouza/fake-gcs-server), and moto's server (S3; in the extra dev).
test-object-stores: install ## Run the tests on object stores: versitygw, Azurite, fake-gcs-server (Go, npm), moto
	@scripts/install_object_stores.sh
	$(WITH_JAVA) .venv/bin/python -m pytest tests/object_stores $(ARGS)

test-cluster-bucket: install ## Run a Spark cluster that shares nothing but a bucket: S3A on versitygw (Maven, Go)
	@scripts/install_object_stores.sh versitygw
	$(WITH_JAVA) .venv/bin/python -m pytest tests/cluster_bucket $(ARGS)

# A kernel that runs as a process (User-mode Linux; apt) has NFS whatever the machine's own has: its server, and two clients.
test-nfs: $(INSTALLED) ## Run the tests on NFS: Linux's own server and two clients of one export (installs them: apt)
	@scripts/install_packages.sh "The tests on NFS" "linux.uml rpc.nfsd rpc.mountd exportfs mount.nfs rpcbind modprobe ip mke2fs" \
		"user-mode-linux nfs-kernel-server nfs-common rpcbind kmod iproute2 e2fsprogs"
	tests/nfs/run.sh $(CURDIR)/.venv/bin/python $(ARGS)

test-hdfs: java $(INSTALLED) ## Run the tests on HDFS: Hadoop's own name node and data node, by WebHDFS (Maven)
	$(WITH_JAVA) .venv/bin/python -m pytest tests/hdfs $(ARGS)

test-kafka: install ## Run the tests against Kafka's own tools
	$(WITH_JAVA) .venv/bin/python -m pytest tests/kafka $(ARGS)

test-ui: $(INSTALLED) ## Run the tests of the web page in a real browser (installs Chromium: apt)
	@scripts/install_packages.sh "The tests of the web page" "chromium chromedriver" "chromium chromium-driver"
	.venv/bin/python -m pytest tests/browser $(ARGS)

mutants: install ## Take the guards of the list out, one at a time: each must turn its test red (tests/mutants/)
	$(WITH_JAVA) .venv/bin/python -m tests.mutants $(ARGS)

# The nemesis runs half an hour, where MINUTES says nothing else.
test-nemesis: MINUTES = 30
test-nemesis: java $(INSTALLED) ## Have everything fail around a topic on several roots for MINUTES=30, and check what was promised (docs/explanation/nemesis.md)
	@scripts/install_object_stores.sh versitygw || echo "no root is in a bucket" >&2
	$(WITH_JAVA) .venv/bin/python -m tests.nemesis --minutes $(MINUTES) --queries 2 $(ARGS)

soak: install ## Run everything at once for MINUTES=60, and judge what grows (docs/explanation/soak.md)
	$(WITH_JAVA) .venv/bin/python -m tests.soak --minutes $(MINUTES) $(ARGS)

check: $(INSTALLED) ## Check style, formatting, types, the direction of imports, the words, the generated pages and the Dockerfile; build the manual; measure the code
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/codespell
	.venv/bin/hadolint Dockerfile
	@.venv/bin/python scripts/generate_reference.py --check
	.venv/bin/python scripts/build_docs.py
	@.venv/bin/python scripts/measure_code.py --check

# ---- release ----

# With PYTHONS each of them also runs the tests of single modules, with what the wheel requires.
package: install ## Build wheel and sdist in dist/, install them in clean environments, alone and with each extra, and try them (PYTHONS="python3.12 …")
	.venv/bin/python scripts/build_package.py
	$(WITH_JAVA) COMMITLOG_DIST=$(CURDIR)/dist PYTHONS="$(PYTHONS)" .venv/bin/python -m pytest tests/package \
		$(if $(PYTHONS),,--ignore tests/package/test_interpreters.py) $(ARGS)

clean: ## Remove the environments, caches and build output
	rm -rf .venv .venv-compat .venv-connect .venv-sail .venv-upserts build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf .cache spark-warehouse metastore_db derby.log demo-root tests/kafka/.jars tests/kafka/.clients tests/object_stores/.servers tests/cluster_bucket/.jars tests/hdfs/.jars benchmarks/jars/.jars benchmarks/.clients
	find . -name __pycache__ -prune -exec rm -rf {} +

"""The scripts that find or install Java, Postgres and packages, against Java homes and package managers made of a little shell."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def make_executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make_java(home: Path, version: str) -> Path:
    """A Java home whose `java -version` answers as real ones do: on stderr, after other remarks."""
    make_executable(
        home / "bin/java",
        f"""echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=17' >&2
echo 'openjdk version "{version}" 2025-04-15' >&2""",
    )
    return home


@dataclass(frozen=True, slots=True)
class Machine:
    """A directory to look for Java homes under, and a PATH with next to nothing on it."""

    jvm_dir: Path
    bin: Path

    def run(self, script: str, *args: str, java_home: Path | str = "") -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "JVM_DIR": str(self.jvm_dir), "JAVA_HOME": str(java_home)}
        env["POSTGRES_DIR"] = str(self.postgres_dir)
        return subprocess.run([SCRIPTS / script, *args], env=env, capture_output=True, text=True, check=False)

    @property
    def postgres_dir(self) -> Path:
        return self.jvm_dir.parent / "postgresql"

    def find_java(self, *, java_home: Path | str = "") -> Path | None:
        found = self.run("find_java.sh", java_home=java_home)
        assert (found.returncode == 0) == bool(found.stdout)
        assert found.stderr == ""
        return Path(found.stdout.rstrip("\n")) if found.stdout else None

    def command(self, name: str, script: str) -> None:
        make_executable(self.bin / name, script)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "jvm", tmp_path / "bin")
    machine.jvm_dir.mkdir()
    machine.bin.mkdir()
    for tool in ("cp", "env", "mkdir", "readlink", "true"):
        (machine.bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool} here"))
    machine.command("id", "echo 0")
    return machine


@pytest.mark.parametrize("version", ["17", "17.0.15", "17-ea", "21", "21.0.7", "21+35"])
def test_java_17_and_21_are_accepted(machine: Machine, version: str) -> None:
    home = make_java(machine.jvm_dir / "some-java", version)
    assert machine.find_java() == home


@pytest.mark.parametrize(
    "version", ["1.8.0_292", "1.7.17", "11.0.22", "16.0.17", "18.0.2", "22.0.21", "25", "170", "217.1"]
)
def test_an_older_or_newer_java_is_passed_over(machine: Machine, version: str) -> None:
    make_java(machine.jvm_dir / "a-java", version)
    assert machine.find_java() is None
    home = make_java(machine.jvm_dir / "b-java", "17.0.15")
    assert machine.find_java() == home


def test_java_home_comes_first_then_path_then_the_system_directory(machine: Machine, tmp_path: Path) -> None:
    by_variable = make_java(tmp_path / "by variable", "21.0.7")
    on_path = make_java(tmp_path / "on-path", "17.0.15")
    in_directory = make_java(machine.jvm_dir / "java-17", "17.0.15")
    assert machine.find_java() == in_directory
    (machine.bin / "java").symlink_to(on_path / "bin/java")
    assert machine.find_java() == on_path
    assert machine.find_java(java_home=by_variable) == by_variable


def test_an_unsupported_java_home_does_not_hide_a_good_one(machine: Machine, tmp_path: Path) -> None:
    too_new = make_java(tmp_path / "java-25", "25.0.1")
    (machine.bin / "java").symlink_to(make_java(tmp_path / "java-11", "11.0.22") / "bin/java")
    good = make_java(machine.jvm_dir / "java-21", "21.0.7")
    assert machine.find_java(java_home=too_new) == good
    assert machine.find_java(java_home=tmp_path / "was-removed") == good


def test_a_java_that_does_not_start_is_passed_over(machine: Machine) -> None:
    make_executable(machine.jvm_dir / "broken/bin/java", "exit 127")
    (machine.jvm_dir / "not-a-java").touch()
    assert machine.find_java() is None


def test_install_java_leaves_a_machine_with_java_alone(machine: Machine) -> None:
    home = make_java(machine.jvm_dir / "java-17", "17.0.15")
    machine.command("apt-get", "echo 'apt-get must not run' >&2; exit 1")
    done = machine.run("install_java.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{home}\n", "")


def test_without_a_package_manager_one_sentence_says_what_to_install(machine: Machine) -> None:
    assert_asks_for_java(machine.run("install_java.sh"))


def test_without_root_or_passwordless_sudo_one_sentence_says_what_to_install(machine: Machine) -> None:
    machine.command("id", "echo 1000")
    machine.command("apt-get", "echo 'apt-get must not run' >&2; exit 1")
    assert_asks_for_java(machine.run("install_java.sh"))
    machine.command("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    assert_asks_for_java(machine.run("install_java.sh"))


def assert_asks_for_java(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Java 17 or 21" in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr


@pytest.mark.parametrize("offered", ["17", "21"])
def test_apt_installs_the_java_that_the_system_offers(machine: Machine, offered: str) -> None:
    install_with_apt(machine, offered)
    done = machine.run("install_java.sh")
    assert (done.returncode, done.stdout) == (0, f"{machine.jvm_dir}/installed\n")


def test_apt_runs_through_passwordless_sudo(machine: Machine) -> None:
    install_with_apt(machine, "17")
    machine.command("id", "echo ${AS:-1000}")
    machine.command("sudo", 'test "$1" = -n && shift && exec env AS=0 "$@"')
    done = machine.run("install_java.sh")
    assert (done.returncode, done.stdout) == (0, f"{machine.jvm_dir}/installed\n")


def install_with_apt(machine: Machine, offered: str) -> None:
    """Put an apt on PATH that serves root only, offers one Java, and knows of it after `update`."""
    package = f"openjdk-{offered}-jre-headless"
    java = make_java(machine.jvm_dir.parent / "package", f"{offered}.0.1") / "bin/java"
    lists, installed = machine.bin / "package-lists", machine.jvm_dir / "installed/bin"
    machine.command("apt-cache", f'test -e {lists} && test "$2" = {package}')
    machine.command(
        "apt-get",
        f"""test "$(id -u)" = 0 || exit 1
case "$*" in
*update*) mkdir {lists} ;;
*install*{package}) mkdir -p {installed} && cp {java} {installed} ;;
*) exit 1 ;;
esac""",
    )


# --- Postgres ---------------------------------------------------------------------------------------------


def test_install_postgres_leaves_a_machine_with_postgres_alone(machine: Machine) -> None:
    machine.command("apt-get", "echo 'apt-get must not run' >&2; exit 1")
    make_executable(machine.postgres_dir / "15/bin/pg_ctl", "")
    done = machine.run("install_postgres.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("who", ["0", "1000"], ids=["without apt", "without rights"])
def test_where_postgres_cannot_be_installed_one_sentence_says_what_to_do(machine: Machine, who: str) -> None:
    machine.command("id", f"echo {who}")
    if who != "0":
        machine.command("apt-get", "echo 'apt-get must not run' >&2; exit 1")
    done = machine.run("install_postgres.sh")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "apt-get install postgresql" in done.stderr


def test_apt_installs_postgres(machine: Machine) -> None:
    installed = machine.postgres_dir / "17/bin"
    make = f"mkdir -p {installed} && cp $(command -v id) {installed}/pg_ctl"
    machine.command("apt-get", f'case "$*" in *install*postgresql) {make} ;; *update*) ;; *) exit 1 ;; esac')
    done = machine.run("install_postgres.sh")
    assert (done.returncode, done.stderr) == (0, "")
    assert (installed / "pg_ctl").exists()


# --- other packages ---------------------------------------------------------------------------------------

PACKAGES = ("The tests of boats", "sail oar", "a-boat two-oars")


def test_programs_that_are_here_are_not_installed(machine: Machine) -> None:
    for name in ("sail", "oar"):
        machine.command(name, "")
    machine.command("apt-get", "echo 'apt-get must not run' >&2; exit 1")
    done = machine.run("install_packages.sh", *PACKAGES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("who", ["0", "1000"], ids=["without apt", "without rights"])
def test_where_packages_cannot_be_installed_one_sentence_says_what_to_do(machine: Machine, who: str) -> None:
    machine.command("id", f"echo {who}")
    machine.command("sail", "")
    if who != "0":
        machine.command("apt-get", "echo 'apt-get must not run' >&2; exit 1")
    done = machine.run("install_packages.sh", *PACKAGES)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "The tests of boats need oar - install them (Debian: apt-get install a-boat two-oars).\n"


def test_apt_installs_packages(machine: Machine) -> None:
    make = " && ".join(f"cp {machine.bin}/id {machine.bin}/{name}" for name in ("sail", "oar"))
    machine.command("apt-get", f'case "$*" in *install*"a-boat two-oars") {make} ;; *update*) ;; *) exit 1 ;; esac')
    done = machine.run("install_packages.sh", *PACKAGES)
    assert (done.returncode, done.stderr) == (0, "")
    assert (machine.bin / "oar").exists()


# --- quick-python -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("/spark/python/lib/pyspark.zip:/spark/py4j-src.zip:/mine", "/spark/py4j-src.zip:/mine"),
        ("/mine:/spark/python/lib/pyspark.zip", "/mine"),
        ("/mine:/my pyspark.zip.d", "/mine:/my pyspark.zip.d"),
        ("", ""),
    ],
)
def test_quick_python_starts_the_python_without_spark_s_archive(tmp_path: Path, given: str, left: str) -> None:
    make_executable(tmp_path / "python", 'printf "%s|%s|%s" "$PYTHONPATH" "$1" "$2"')
    done = subprocess.run(
        [SCRIPTS.parent / "pyspark_commitlog" / "spark" / "session" / "quick-python", "-m", "a b"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": given, "QUICK_PYTHON": str(tmp_path / "python")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{left}|-m|a b"

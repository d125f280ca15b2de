"""Tools for tests of storages and programs, unused by the package.

- `manual_clock.ManualClock`: time that a test moves by hand.
- `faults.FaultyStorage`: a storage that fails, blocks or dies at the operation that a hook chooses.
- `storage_contract`: tests of a `Storage`, as classes (`StorageContract`, `ObjectContract` without append); needs
  pytest.

A log whose first commit gets no answer, under a clock that stands still::

    from pyspark_commitlog import CommitLog
    from pyspark_commitlog.storage.local.local import LocalStorage
    from pyspark_commitlog.testing.manual_clock import ManualClock
    from pyspark_commitlog.testing.faults import FaultyStorage, lose_reply, on_path

    hook = on_path("/journal/", "put_if_absent", lose_reply, when="after")
    log = CommitLog.on(FaultyStorage(LocalStorage("/data/commitlog", clock=ManualClock()), hook))

With `pytest.register_assert_rewrite("pyspark_commitlog.testing")` in a `conftest.py`, before the import, pytest
explains failed asserts.
"""

"""Builds the sdist, and of it the wheel, in dist/: `make package`. A file that they lack, or should not have, fails it.

Only files that Git knows are built, in a copy: neither an earlier build nor what lies about gets in.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "pyspark_commitlog"
#: Beside the package in an sdist: what the wheel is built of, and what setuptools adds.
BESIDE = frozenset({"LICENSE", "README.md", "pyproject.toml", "setup.cfg"})
_ADDED_TO_SDIST = frozenset(
    {"PKG-INFO"}
    | {
        f"{PACKAGE}.egg-info/{name}"
        for name in (
            "PKG-INFO",
            "SOURCES.txt",
            "dependency_links.txt",
            "entry_points.txt",
            "requires.txt",
            "top_level.txt",
        )
    }
)
_ADDED_TO_WHEEL = frozenset({"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"})


@dataclass(frozen=True, slots=True)
class Distributions:
    """The paths of a wheel and an sdist of one version."""

    wheel: Path
    sdist: Path


def sdist_files(sources: Iterable[str]) -> set[str]:
    """Return the files of an sdist, below its directory, from those of the repository (pure)."""
    return {name for name in sources if _is_packaged(name) or name in BESIDE} | _ADDED_TO_SDIST


def wheel_files(sources: Iterable[str], dist_info: str) -> set[str]:
    """Return the files of a wheel with that `.dist-info` directory, from those of the repository (pure)."""
    return {name for name in sources if _is_packaged(name)} | {f"{dist_info}/{name}" for name in _ADDED_TO_WHEEL}


def differences(expected: set[str], found: set[str]) -> list[str]:
    """Return a line for each file that is missing, or should not be there (pure)."""
    missing = [f"missing: {name}" for name in sorted(expected - found)]
    return missing + [f"should not be there: {name}" for name in sorted(found - expected)]


def _is_packaged(name: str) -> bool:
    return PurePosixPath(name).parts[0] == PACKAGE


def sources() -> list[str]:
    """Return the repository's files: tracked, or new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if name and (REPOSITORY / name).is_file()})


def build(into: Path, *, isolated: bool = True) -> Distributions:
    """Build both.

    Args:
        into: a directory without distributions.
        isolated: False to build with the setuptools of this environment, which asks no package index.

    Raises:
        subprocess.CalledProcessError: the build failed; its output is on stderr.
    """
    with tempfile.TemporaryDirectory() as copy:
        for name in sources():
            if _is_packaged(name) or name in BESIDE:
                target = Path(copy, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, target)
        command = [
            sys.executable,
            "-m",
            "build",
            "--outdir",
            str(into),
            *(() if isolated else ("--no-isolation",)),
            copy,
        ]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return built(into)


def built(directory: Path) -> Distributions:
    """Return the one wheel and the one sdist of a directory.

    Raises:
        FileNotFoundError: there is not exactly one of each.
    """
    wheels, sdists = list(directory.glob("*.whl")), list(directory.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        raise FileNotFoundError(f"{directory} has {len(wheels)} wheels and {len(sdists)} sdists: run make package")
    return Distributions(wheels[0], sdists[0])


def faults(found: Distributions) -> list[str]:
    """Return a line for each file that a wheel or an sdist lacks, should not have, or has with other content."""
    known = sources()
    with tarfile.open(found.sdist) as sdist:
        inside = {name.partition("/")[2] for name in (each.name for each in sdist.getmembers() if each.isfile())}
    lines = [f"{found.sdist.name}: {line}" for line in differences(sdist_files(known), inside)]
    with zipfile.ZipFile(found.wheel) as wheel:
        names = {each.filename for each in wheel.infolist() if not each.is_dir()}
        dist_info = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        lines += [f"{found.wheel.name}: {line}" for line in differences(wheel_files(known, dist_info), names)]
        packaged = [name for name in known if _is_packaged(name) and name in names]
        changed = [name for name in packaged if wheel.read(name) != (REPOSITORY / name).read_bytes()]
    return lines + [f"{found.wheel.name}: not the repository's: {name}" for name in changed]


def main() -> int:
    """Build into a directory, which is emptied first; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=REPOSITORY / "dist", help="dist/, if it is not said")
    into = parser.parse_args().into
    for old in (*into.glob("*.whl"), *into.glob("*.tar.gz")):
        old.unlink()
    found = build(into)
    lines = faults(found)
    print("\n".join(lines or (f"{path} {path.stat().st_size:,} bytes" for path in (found.wheel, found.sdist))))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())

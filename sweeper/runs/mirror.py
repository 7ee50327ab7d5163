"""A copy of a run directory at a URL (S3, GCS, HDFS, a shared folder), kept up after every finished trial."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.driver.drives import read_drives
from sweeper.errors import SweeperError
from sweeper.records import Baseline, BaselineCheck, ConfirmationRound, TrialRecord
from sweeper.runs.archive import (
    DATABASE,
    check_database,
    database_snapshot,
    files_of,
    new_directory,
    replace_directory,
)
from sweeper.speculation import SpeculationConfig

if TYPE_CHECKING:
    from sweeper.storage.stored_trial import Speedups
    from sweeper.study.surroundings import Display, Tally

MANIFEST = "manifest.json"
OBJECT_STORES = ("s3", "gcs", "abfs")
"""There a file appears when it is complete, and moving one copies it; elsewhere it is written aside and moved."""
RETRY_S = 30.0
LAST_TRY_S = 120.0
RESTS = 9
"""Times as long as a push took: the database grows with the study, and is copied whole each time."""


class Mirror:
    """``URL/<study>/``: the run's files, its database, and last of all a manifest, which makes them count.

    Files of finished trials never change. What does change (database, table) is replaced whole, so that a reader
    meets the state of one trial or of the next, never half of one.
    """

    def __init__(self, url: str, study: str) -> None:
        """Raises SweeperError: the URL names no file system that pyarrow knows here, or it cannot be reached."""
        from pyarrow import fs

        self.url = url.rstrip("/")
        try:
            self._fs, root = fs.FileSystem.from_uri(self.url)
        except (ValueError, OSError, NotImplementedError) as error:
            raise SweeperError(f"artifacts: {url}: cannot be used: {error}") from None
        self._kind = fs.FileType
        self._base = f"{root}/{study}"
        self._pushed: dict[str, tuple[int, int]] = {}

    def drives(self) -> int:
        """How many drivers the copy has seen; 0 where there is none.

        Raises:
            SweeperError: the place cannot be reached.
        """
        return int(self._manifest().get("drives", 0))

    def push(self, run: Path) -> int:
        """Copy what is new; returns the number of files. Only one process may push a study.

        Raises:
            OSError: the place cannot be written to; what is there stays valid.
        """
        copied = 0
        sizes: dict[str, int] = {}
        for path in files_of(run):
            name, stat = str(path.relative_to(run)), path.stat()
            sizes[name] = stat.st_size
            if self._pushed.get(name) != (stat.st_size, stat.st_mtime_ns):
                self._put(path.read_bytes(), name)
                self._pushed[name] = (stat.st_size, stat.st_mtime_ns)
                copied += 1
        with database_snapshot(run) as database:
            if database:
                sizes[DATABASE] = database.stat().st_size
                self._put(database.read_bytes(), DATABASE)
        manifest = {"drives": len(read_drives(run)), "files": sizes}
        self._put(json.dumps(manifest, indent=1).encode(), MANIFEST)
        return copied

    def pull(self, to: Path) -> None:
        """Put the copy at ``to``, complete or not at all; what stood there before is replaced.

        Raises:
            SweeperError: there is no copy, or it is incomplete or damaged.
        """
        files = self._manifest().get("files", {})
        if not files:
            raise SweeperError(f"{self.url}: holds no copy of run {to.name!r}")
        with new_directory(to) as scratch:
            new = scratch / to.name
            for name, size in files.items():
                self._get(new, name, size)
            check_database(new)
            replace_directory(new, to)

    def _get(self, run: Path, name: str, size: int) -> None:
        target = run / name
        if not target.resolve().is_relative_to(run.resolve()):
            raise SweeperError(f"{self.url}: the manifest names a file outside of the run: {name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._fs.open_input_stream(f"{self._base}/{name}") as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
        except OSError as error:
            raise SweeperError(f"{self.url}: {name} cannot be read: {error}") from None
        if "/" in name and target.stat().st_size != size:  # the others may be those of the next trial
            raise SweeperError(f"{self.url}: {name} has {target.stat().st_size} bytes instead of {size}")

    def _put(self, content: bytes, name: str) -> None:
        target = f"{self._base}/{name}"
        direct = self._fs.type_name in OBJECT_STORES
        if not direct:
            self._fs.create_dir(target.rsplit("/", 1)[0], recursive=True)
        with self._fs.open_output_stream(target if direct else f"{target}.part") as file:
            file.write(content)
        if not direct:
            self._fs.move(f"{target}.part", target)

    def _manifest(self) -> dict[str, Any]:
        where = f"{self._base}/{MANIFEST}"
        try:
            if self._fs.get_file_info(where).type == self._kind.NotFound:
                return {}
            with self._fs.open_input_stream(where) as file:
                return dict(json.loads(file.read()))
        except (OSError, ValueError) as error:
            raise SweeperError(f"artifacts: {self.url}: cannot be read: {error}") from None


class MirrorThread:
    """Pushes in the background, so that a slow store holds no trial up; a context manager whose end pushes once more.

    A store that fails is tried again; the person is told when it begins to and when it is over.
    """

    def __init__(self, mirror: Mirror, run: Path, say: Callable[[str], None]) -> None:
        self._mirror, self._run, self._say = mirror, run, say
        self._wanted, self._ending = threading.Event(), threading.Event()
        self._behind = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def __enter__(self) -> MirrorThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._wanted.set()
        self._thread.join(LAST_TRY_S)
        if self._thread.is_alive() or self._behind:
            self._say(
                f"The copy at {self._mirror.url} is behind: what is missing there lies in {self._run} only"
            )

    def push_soon(self) -> None:
        self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait(RETRY_S if self._behind else None)
            ending = self._ending.is_set()
            self._wanted.clear()
            began = time.monotonic()
            self._try()
            if ending:
                return
            self._ending.wait(RESTS * (time.monotonic() - began))

    def _try(self) -> None:
        try:
            self._mirror.push(self._run)
        except Exception as error:  # each store has errors of its own; none may end the sweep
            if not self._behind:
                self._say(f"The copy at {self._mirror.url} cannot be kept up, trying again: {error}")
            self._behind = True
            return
        if self._behind:
            self._say(f"The copy at {self._mirror.url} is up to date again")
        self._behind = False


class Mirrored:
    """A display that has the mirror follow every event that changes the run directory."""

    def __init__(self, display: Display, mirror: MirrorThread) -> None:
        self._display, self._mirror = display, mirror

    def baseline(self, baseline: Baseline, how: str) -> None:
        self._display.baseline(baseline, how)
        self._mirror.push_soon()

    def checked(self, check: BaselineCheck, consequence: str) -> None:
        self._display.checked(check, consequence)

    def skipped(self, configs: Mapping[SpeculationConfig, str]) -> None:
        self._display.skipped(configs)

    def finished(self, number: int, record: TrialRecord, speedups: Speedups) -> None:
        self._display.finished(number, record, speedups)
        self._mirror.push_soon()

    def confirmed(self, done: ConfirmationRound, of: int) -> None:
        self._display.confirmed(done, of)
        self._mirror.push_soon()

    def tick(self, tally: Tally, phases: Mapping[str, str]) -> None:
        self._display.tick(tally, phases)

"""One driver per study, on however many machines: a row in the study's own database says whose it is.

No clock of any machine is compared with another's: the holder counts a number up once a second, and whoever wants the
study watches it. It may be taken over once it has stood still through ``SILENT_S`` seconds of answered looks (a
database that is down silences everybody and counts for nothing), or at once if the holder ran on this machine and is
gone. Taking it over is one conditional UPDATE. Every transaction in which the holder writes locks and reads the row
before it commits, so that nothing is written by a driver that was replaced, however long it slept.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text, delete, insert, select, update
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from sweeper.driver.holder import Holder
from sweeper.driver.lock_file import taken
from sweeper.errors import LeaseLostError
from sweeper.storage.patience import Patience
from sweeper.storage.patient import passing_storage_error

BEAT_S = 1.0
LOOK_S = 0.25
SILENT_S = 30.0
"""A driver that shows no sign of life for so long, while the database answers, has lost its study to the next one."""

TELL_AFTER_S = 3.0
PEEK_S = 2.5

LEASES = Table(
    "sweeper_leases",
    MetaData(),
    Column("study", String(255), primary_key=True),
    Column("token", String(36), nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
)


@dataclass(frozen=True)
class _Row:
    token: str
    beat: int
    holder: Holder


class Lease:
    """The right to write a study, for as long as this process shows signs of life. Use ``leased`` to get one."""

    def __init__(self, engine: Engine, study: str, holder: Holder) -> None:
        self.engine, self.study, self.holder = engine, study, holder
        self.token = str(uuid.uuid4())
        self.lost = False
        self._end = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._mine = (LEASES.c.study == study) & (LEASES.c.token == self.token)

    def acquire(self, patience: Patience) -> None:
        """Take the study, if need be from a driver that is gone.

        Raises:
            SweeperError: another driver has it and is alive; after two of its signs of life, usually within 2 s.
        """
        patience("storage", self._create_table, passing_storage_error)
        seen: _Row | None = None
        silent_s, looked_at, told = 0.0, time.monotonic(), False
        while True:
            row = patience("storage", self._look, passing_storage_error)
            now = time.monotonic()
            silent_s, looked_at = silent_s + min(now - looked_at, 1.0), now
            if row is None:
                if patience("storage", self._insert, passing_storage_error):
                    break
                continue
            if seen is None or row.token != seen.token:
                seen, silent_s = row, 0.0
            elif row.beat != seen.beat:
                raise taken(self.study, row.holder)
            if row.holder.gone() or silent_s >= SILENT_S:
                if patience("storage", lambda row=row: self._replace(row), passing_storage_error):  # type: ignore[misc]
                    patience.say(f"taking over the study from a driver that is gone ({row.holder})")
                    break
                seen = None
                continue
            if silent_s > TELL_AFTER_S and not told:
                told = True
                patience.say(
                    f"study {self.study!r} is held by another process ({row.holder}) that shows no sign of life; "
                    f"taking it over in {SILENT_S - silent_s:.0f} s if that stays so"
                )
            time.sleep(LOOK_S)
        self._beating.start()

    def refuse_second(self) -> None:
        """Raises SweeperError if another driver shows a sign of life within ``PEEK_S`` seconds; changes nothing."""
        first: _Row | None = None
        deadline = time.monotonic() + PEEK_S
        while time.monotonic() < deadline:
            try:
                row = self._look()
            except SQLAlchemyError:
                return  # no table yet, or no answer: whoever takes the study finds out
            if row is None or row.holder.gone():
                return
            first = first or row
            if row != first:
                raise taken(self.study, row.holder)
            time.sleep(LOOK_S)

    def release(self) -> None:
        """Let the next driver have the study at once."""
        self._end.set()
        self._beating.join(5)
        with contextlib.suppress(SQLAlchemyError), self.engine.begin() as connection:
            connection.execute(delete(LEASES).where(self._mine))

    def check(self) -> None:
        """Raises LeaseLostError once another driver has the study."""
        if self.lost:
            raise self._lost()

    def fence(self, session: Session) -> None:
        """Make sure, within a transaction and until its end, that the study is still this process's.

        Raises:
            LeaseLostError: it is not.
        """
        row = session.execute(select(LEASES.c.token).where(LEASES.c.study == self.study).with_for_update())
        if row.scalar() != self.token:
            self.lost = True
            raise self._lost()

    def _lost(self) -> LeaseLostError:
        who = ""
        with contextlib.suppress(SQLAlchemyError):
            row = self._look()
            who = f" ({row.holder})" if row else ""
        return LeaseLostError(
            f"study {self.study!r} was taken over by another process{who}, since this one showed no sign of life for "
            f"{SILENT_S:.0f} s: it was suspended, or cut off from the storage. It stops here; the other one goes on"
        )

    def _create_table(self) -> None:
        try:
            LEASES.create(self.engine, checkfirst=True)
        except SQLAlchemyError:
            self._look()  # another driver created it in the same moment

    def _look(self) -> _Row | None:
        wanted = select(LEASES.c.token, LEASES.c.beat, LEASES.c.holder).where(LEASES.c.study == self.study)
        with self.engine.begin() as connection:
            found = connection.execute(wanted).one_or_none()
        return _Row(found.token, found.beat, Holder(**json.loads(found.holder))) if found else None

    def _values(self) -> dict[str, object]:
        return {"token": self.token, "beat": 0, "holder": json.dumps(asdict(self.holder))}

    def _insert(self) -> bool:
        try:
            with self.engine.begin() as connection:
                connection.execute(insert(LEASES).values(study=self.study, **self._values()))
        except IntegrityError:
            row = self._look()
            return row is not None and row.token == self.token  # the answer to the first attempt was lost
        return True

    def _replace(self, row: _Row) -> bool:
        """Take over if nothing has changed since ``row`` was read."""
        unchanged = (
            (LEASES.c.study == self.study) & (LEASES.c.token == row.token) & (LEASES.c.beat == row.beat)
        )
        with self.engine.begin() as connection:
            done = connection.execute(update(LEASES).where(unchanged).values(**self._values()))
        if done.rowcount == 1:
            return True
        now = self._look()
        return now is not None and now.token == self.token

    def _beat(self) -> None:
        step = update(LEASES).where(self._mine).values(beat=LEASES.c.beat + 1)
        while not self._end.wait(BEAT_S):
            try:
                with self.engine.begin() as connection:
                    done = connection.execute(step)
            except SQLAlchemyError:
                continue  # while the database is down nobody can take the study over, either
            if done.rowcount == 0:
                self.lost = True
                return


@contextmanager
def leased(engine: Engine, study: str, holder: Holder, patience: Patience) -> Iterator[Lease]:
    """Hold a study in its database for as long as the block runs.

    Raises:
        SweeperError: another driver has it.
    """
    lease = Lease(engine, study, holder)
    lease.acquire(patience)
    try:
        yield lease
    finally:
        lease.release()
        engine.dispose()

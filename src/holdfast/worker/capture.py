"""Records of the `logging` module that a handler emits while it runs, on their way to its job's log.

- What a record belongs to is told by the context it is emitted in: that of the handler, its tasks, and what it runs with
  `asyncio.to_thread`.
- Nothing of the user's configuration changes: loggers keep their levels, and a program without any handler still gets
  its warnings on standard error.
- Holdfast's own records are not taken.
"""

import logging
from copy import copy

from holdfast.worker.handler import CALL, LONGEST_LINE, Notes, cut

OWN = "holdfast"


class Capture(logging.Handler):
    """One for each worker, on the root logger from its first job on."""

    def __init__(self, notes: Notes, log_level: str) -> None:
        # Without a level of its own: of what it lets through it must see everything, see `_last_resort`.
        super().__init__()
        self._notes = notes
        self._least = logging.getLevelNamesMapping()[log_level]

    def createLock(self) -> None:
        self.lock = None  # the notes have one, and a handler that a fork finds locked would stay so

    def handle(self, record: logging.LogRecord) -> bool:
        self.emit(record)
        return True

    def install(self) -> None:
        """Also again: whoever configures logging anew takes all handlers away."""
        if self not in logging.root.handlers:
            logging.root.addHandler(self)

    def remove(self) -> None:
        logging.root.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Whatever happens, the code that logs does not hear of it."""
        try:
            call = CALL.get(None)
            if call is not None and call.notes is self._notes and self._wants(record):
                text = cut(call.hidden.apply(self._text(record)), LONGEST_LINE)
                self._notes.line(call, record.levelname, text)
            self._last_resort(record)
        except Exception:
            self.handleError(record)

    def _wants(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self._least and record.name.partition(".")[0] != OWN

    def _text(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception:
            return f"{record.msg!s:.2000} {record.args!r:.2000}"

    def _last_resort(self, record: logging.LogRecord) -> None:
        """Where nobody has set up logging, Python writes warnings to standard error; our being there would end that."""
        alone = all(isinstance(handler, Capture) for handler in logging.root.handlers)
        if not alone or logging.root.handlers[0] is not self or logging.lastResort is None:
            return
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger is not logging.root:
            if logger.handlers:
                return
            logger = logger.parent
        if record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(self._shown(record))

    def _shown(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record without the secrets of the job that emits it."""
        call = CALL.get(None)
        if call is None or not call.hidden.secrets:
            return record
        shown = copy(record)
        shown.msg, shown.args = call.hidden.apply(self._text(record)), None
        shown.exc_info = shown.exc_text = shown.stack_info = None  # they are in the text
        return shown


class HidingFormatter(logging.Formatter):
    """Formats records for the log of the worker itself, without the secrets of the job that emits them."""

    def format(self, record: logging.LogRecord) -> str:
        call = CALL.get(None)
        text = super().format(record)
        return text if call is None else call.hidden.apply(text)

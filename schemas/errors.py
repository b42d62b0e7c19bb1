"""One tree of errors for everything the world can do to us.

    TempoError
    ├── MalformedInput   bytes, lines or files that do not follow their format
    ├── UnknownSchema    a well-framed record whose fingerprint this version does not know
    ├── MissingTopic     a topic that must exist before a stage starts
    ├── BrokerAway       no broker answers, or it refuses us
    ├── Fenced           another producer took over our transactional id, or our transaction timed out
    ├── LostInput        the log no longer holds what a stage has to read next
    ├── Setup            something the machine lacks (Java, jars, a right) or holds (a port, a folder)
    └── Usage            a wrong command line or setting

A message says what happened, where, and what to do. Errors of our own making are plain asserts.
"""


class TempoError(Exception):
    """Base of all errors that input, the broker, the machine or the user can cause."""


class MalformedInput(TempoError):
    """Input does not follow its format. `where` names the place (byte, line, field) if it is known."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{what} ({where})" if where else what)
        self.what = what
        self.where = where


class UnknownSchema(TempoError):
    """A record framed with a fingerprint that no shipped schema has."""


class MissingTopic(TempoError):
    """A topic does not exist; `tempotrace topics create` makes a tenant's topics."""


class BrokerAway(TempoError):
    """No broker could be reached, or it refused the credentials."""


class Fenced(TempoError):
    """Our transactional id belongs to another producer now, or our transaction timed out."""


class LostInput(TempoError):
    """The log was recreated, or cut beyond the place where a stage has to go on."""


class Setup(TempoError):
    """The machine lacks something needed, or something is in the way."""


class Usage(TempoError):
    """A wrong command line or setting: exit code 2."""


def cause_of(error: BaseException) -> str:
    """Why something failed, without the name of the file: that stands in the message around it anyway."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__

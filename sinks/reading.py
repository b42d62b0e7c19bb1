"""Reading the low-rate topics."""

from schemas import codec, records
from schemas.errors import MalformedInput
from schemas.processor import Record


def read_one(kind: type[records.T], record: Record) -> records.T:
    """The record's value, which must be of this kind. Raises MalformedInput, UnknownSchema."""
    value = codec.decode_record(record.value or b"")
    if value["_type"] != kind.__name__:
        raise MalformedInput(f"a {value['_type']} where a {kind.__name__} was expected")
    return records.read(kind, value)

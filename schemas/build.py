"""Write the .avsc files and their lock: `python -m schemas.build` (`--check` only compares).

The lock maps each fingerprint to the SHA-256 of the .avsc without its `doc` texts. The canonical fingerprint
does not see dtype or unit; the lock does, so changing either without a new record name or field is caught.
A file once locked stays as it is: a changed schema of the same name is written beside it with a counter.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from schemas import codec, flat

LOCK = Path(__file__).parent / "lock.json"


def _without_docs(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_docs(value) for key, value in node.items() if key != "doc"}
    if isinstance(node, list):
        return [_without_docs(value) for value in node]
    return node


def digest(avsc: dict[str, Any]) -> str:
    """SHA-256 of a schema's JSON without docs."""
    return hashlib.sha256(json.dumps(_without_docs(avsc), sort_keys=True).encode()).hexdigest()


def text(avsc: dict[str, Any]) -> str:
    """A schema as its file holds it."""
    return json.dumps(avsc, indent=1) + "\n"


def problems() -> list[str]:
    """What is wrong between code, files and lock; empty if all agree."""
    lock: dict[str, str] = json.loads(LOCK.read_text()) if LOCK.exists() else {}
    files = {file: json.loads(file.read_text()) for file in sorted(codec.AVSC.glob("*.avsc"))}
    shipped = {flat.fingerprint(avsc).hex(): avsc for avsc in files.values()}
    out = []
    for name, avsc in codec.current().items():
        crc = flat.fingerprint(avsc).hex()
        if crc not in shipped:
            out.append(f"{name}: no file holds the current schema; run python -m schemas.build")
        elif digest(shipped[crc]) != digest(avsc):
            out.append(
                f"{name}: dtype or unit of a field changed, which readers cannot see; add a new column"
            )
        elif text(shipped[crc]) != text(avsc):
            out.append(f"{name}: the file's docs are old; run python -m schemas.build")
    for crc, avsc in shipped.items():
        if lock.get(crc) != digest(avsc):
            out.append(f"{avsc['name']}: {crc} is not in the lock as it stands")
    out += [f"{crc}: locked, but no file holds it" for crc in lock if crc not in shipped]
    return out


def build() -> None:
    """Write files and lock. Raises AssertionError where a locked schema would change its meaning."""
    codec.AVSC.mkdir(exist_ok=True)
    lock: dict[str, str] = json.loads(LOCK.read_text()) if LOCK.exists() else {}
    held = {flat.fingerprint(json.loads(file.read_text())).hex(): file for file in codec.AVSC.glob("*.avsc")}
    for avsc in codec.current().values():
        crc = flat.fingerprint(avsc).hex()
        assert lock.setdefault(crc, digest(avsc)) == digest(avsc), (
            f"{avsc['name']}: dtype or unit changed under a locked fingerprint; add a new column instead"
        )
        file = held.get(crc)
        if file is None:
            file = codec.AVSC / f"{avsc['name']}.avsc"
            number = 1
            while file.exists():
                number += 1
                file = codec.AVSC / f"{avsc['name']}.{number}.avsc"
        file.write_text(text(avsc))
    LOCK.write_text(json.dumps(dict(sorted(lock.items())), indent=1) + "\n")


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        found = problems()
        print("\n".join(found) or "schemas, files and lock agree", file=sys.stderr if found else sys.stdout)
        sys.exit(1 if found else 0)
    build()

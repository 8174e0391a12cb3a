"""How the commands meet the terminal: files and standard input in, output and one line of an error out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from specfleet.cli.again import MAX_FILE
from specfleet.cli.kubectl import KubectlError
from specfleet.cli.pages import BadInput
from specfleet.cli.words import Shown

MANIFESTS = (".yaml", ".yml", ".json")  # what kubectl takes of a folder


def texts(files: list[str]) -> Iterator[tuple[str, str | BadInput]]:
    """The name and the text of each file, of a folder of each manifest in it and below; BadInput in the place of one
    that cannot be read."""
    for file in files:
        if file != "-" and Path(file).is_dir():
            found = sorted(path for path in Path(file).rglob("*") if path.suffix in MANIFESTS and path.is_file())
            yield from ((str(path), _text(str(path))) for path in found)
        else:
            yield file, _text(file)


def _text(file: str) -> str | BadInput:
    try:
        return sys.stdin.buffer.read().decode() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return BadInput(f"cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not UTF-8'}")


def content(file: str) -> bytes:
    """At most a byte more than MAX_FILE of a file. Raises BadInput."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as source:
            return source.read(MAX_FILE + 1)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None


def guarded(run: Callable[[], None]) -> None:
    """Run a command; what it cannot do is one line and the exit status 1."""
    try:
        run()
    except (KubectlError, BadInput) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def fail(line: str, status: int = 1) -> NoReturn:
    """One line on stderr, never folded, and the exit status."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Shown(Text(f"error: {line}")))
    raise typer.Exit(status)


def console() -> Console:
    """Standard output, on which nothing is styled but what says so."""
    return Console(highlight=False, markup=False, emoji=False)

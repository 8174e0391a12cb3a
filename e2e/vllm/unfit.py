#!/usr/bin/env python3
"""Makes a drafter that does not fit the target out of one that does: unfit.py DRAFTER OUTPUT

The rows of its token embedding change places, so that it speaks of other tokens than the target hears: what a drafter
for another tokenizer of the same size would do. vLLM loads it, answers are right, and (next to) nothing is accepted.
"""

import json
import shutil
import sys
from pathlib import Path
from random import Random

EMBEDDING = "model.embed_tokens.weight"
SEED = 1


def shuffled(weights: bytes) -> bytes:
    """A safetensors file (8 bytes of header length, JSON header, data) with the embedding's rows shuffled."""
    length = 8 + int.from_bytes(weights[:8], "little")
    tensor = json.loads(weights[8:length])[EMBEDDING]
    begin, end = (length + offset for offset in tensor["data_offsets"])
    size = (end - begin) // tensor["shape"][0]
    rows = [weights[at : at + size] for at in range(begin, end, size)]
    Random(SEED).shuffle(rows)
    return weights[:begin] + b"".join(rows) + weights[end:]


def main(drafter: Path, output: Path) -> None:
    shutil.copytree(drafter, output)
    weights = output / "model.safetensors"
    weights.write_bytes(shuffled(weights.read_bytes()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

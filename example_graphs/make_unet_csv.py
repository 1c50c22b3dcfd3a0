"""Write unet_training.csv: the buffers of one training step of a U-Net, as a compiler's list would have them.

Forward, a layer keeps its output for its backward, or drops it and computes it again then (selective
checkpointing); the last layer of every level on the way down also waits for the way up. Backward makes
gradients in reverse. Convolutions have scratch buffers. What is kept and how large scratch is comes from a
seeded generator. Run `python -m memplan_examples.make_unet_csv` to make the file anew.
"""

from __future__ import annotations

import random

from memplan_examples import PATH

from memplan_engine import make_problem, write_csv

LEVELS, BLOCKS, BATCH, SIDE, CHANNELS, ITEM = 5, 4, 2, 256, 32, 2
KEPT = 0.15
SEED = 7


def forward_layers() -> list[tuple[str, int]]:
    """Name and output bytes of each layer: down, across the bottom, and up again."""
    layers = []
    for path, levels in (("down", range(LEVELS)), ("up", range(LEVELS - 2, -1, -1))):
        for level in levels:
            nbytes = BATCH * (SIDE >> level) ** 2 * (CHANNELS << level) * ITEM
            for block in range(BLOCKS):
                layers += [
                    (f"{path}{level}.{block}.{kind}", nbytes) for kind in ("conv", "norm", "act", "drop")
                ]
    return layers


def buffers() -> list[tuple[str, int, int, int]]:
    """Name, start, end (half-open) and bytes of every buffer of the step."""
    draw = random.Random(SEED)
    layers = forward_layers()
    last = 2 * len(layers)
    found = []
    for step, (name, nbytes) in enumerate(layers):
        backward = last - 1 - step
        if draw.random() < KEPT:
            found.append((name, step, backward + 1, nbytes))
        else:
            found.append((name, step, skip_end(layers, step), nbytes))
            found.append((f"{name}.again", backward - draw.randrange(1, 4), backward + 1, nbytes))
        found.append((f"{name}.grad", backward, min(backward + 2, last), nbytes))
        if name.endswith("conv"):
            found.append((f"{name}.scratch", step, step + 1, draw.randrange(1, 257) * 64 * 1024))
            found.append((f"{name}.grad.scratch", backward, backward + 1, draw.randrange(1, 513) * 64 * 1024))
            found.append((f"{name}.weight.grad", backward, last, draw.randrange(1, 65) * 4096))
        if name.endswith("norm"):
            found.append((f"{name}.stats", step, backward + 1, draw.choice((256, 512, 1024, 2048))))
        if name.endswith("drop"):
            found.append((f"{name}.mask", step, backward + 1, nbytes // ITEM))
    return sorted(found, key=lambda row: (row[1], row[0]))


def skip_end(layers: list[tuple[str, int]], step: int) -> int:
    """The end of a dropped output: after its next reader, or on the way up for the last of a level."""
    name, _ = layers[step]
    level = name.split(".")[0]
    up = f"up{level.removeprefix('down')}.0.conv"
    readers = [reader for reader, (other, _) in enumerate(layers) if other == up]
    is_last = name.endswith(f".{BLOCKS - 1}.drop") and level.startswith("down")
    return readers[0] + 1 if is_last and readers else step + 2


def main() -> None:
    """Write the file beside this one."""
    names, start, end, size = zip(*buffers(), strict=True)
    problem = make_problem(start, end, size, names=names, alignment=64, name="unet_training")
    write_csv(problem, PATH / "unet_training.csv")


if __name__ == "__main__":
    main()

"""docs/encoders.md, printed from what the code says of its encoders and their settings.

`python bench/encoder_page.py` writes bench/out/encoders.md, `python bench/encoder_page.py --replace` docs/encoders.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import figures
from pydantic_core import PydanticUndefined

from trainer.config.network import ARCHES, EncoderArch, EncoderSettings, Network

ROOT = Path(__file__).resolve().parents[1]

PAGE = """# Encoders: what reads pictures and clips

An observation that is not one row of numbers is read by an encoder, which makes features of it; what follows is the
same net as for a state. This page is printed by `python bench/encoder_page.py --replace`. What each encoder costs, in
operations, milliseconds and memory, is in [benchmarks.md](benchmarks.md#encoders).

```json
"training": {
  "env": {"name": "arm", "observation": "clips", "image_size": 112, "frame_stack": 16},
  "algorithm": "sac",
  "network": {"encoder": {"arch": "r3d18", "weights": "weights/r3d_18-b3b3357e.pth"}, "trunk": 50}
}
```

@{arches}

`meant for`: frames and pixels; parameters and features are those there, of one camera in colour. `least`: the smallest
side of a picture that it reads; "n x 16": in steps of so many pixels, as pictures are cut into squares. Nothing is
resized: have pictures drawn in the size that an encoder is meant for (`env.image_size`).

- **Pictures** (`env.observation` `cameras` or `both`) are [C, H, W]: the colours of all cameras and of all stacked
  frames behind each other, read together.
- **Clips** (`env.observation` `clips`) are [T, C, H, W]. One net reads each camera's clip, and the features of all
  cameras stand side by side: two cameras, twice the features.
- `arch` `auto`, the default, is `nature` for pictures and `simple3dcnn` for clips. A name may also be an installed
  package's, or `package.module:Name` ([plugins.md](plugins.md)).

## Settings

Under `network.encoder`:

@{settings}

Beside it:

- `network.trunk`: @{trunk}
- `network.encoders`: @{encoders}

## Which one

Start with the small ones, trained from nothing. In simulation a small net with random shifts is as good as the
published large ones, at a fraction of their cost, because pictures of a simulator are not what those were trained on
([Hansen et al. 2022](https://arxiv.org/abs/2212.05749)). Large ones pay where few demonstrations are imitated
([R3M](https://arxiv.org/abs/2203.12601)). On a processor `r3d18` makes about two clips of its own size a second, and
`timesformer` one in two seconds, on one core; GPUs were not tried.

- **Frozen** (the default with `weights`): features are made once, while acting, and kept in place of frames. Pictures
  cannot be shifted then. Only `network.encoder` can be frozen, and none of `network.encoders`.
- **Trained** (`freeze` false): set `lr_scale` to 0.1 where it comes from a file. R3D-18's batch normalisation stays as
  the file has it, in training too.

## Weights

Nothing is ever downloaded here: nodes of clusters seldom have internet, and a run should not depend on it. Fetch the
file on your laptop, copy it to the cluster, give its path on the machine that trains:

```bash
@{fetch}
rsync @{file} LOGIN_NODE:weights/
```

@{weights}

A file is safetensors, a folder as Hugging Face lays it (`config.json`, `model.safetensors`, or shards with their
index), or a `.pth` or `.bin` that holds tensors and nothing else: it is read in a way that runs no code, and one that
asks for code is refused. A known prefix (`timesformer.`) is taken off and a known head (`fc.`, `classifier.`) left out;
then every tensor must be there, in its shape, and no other. TimeSformer's embeddings of another size are brought to
yours: places bicubic, moments in a line. What was trained at 224 by 224 pixels still knows large pictures best.

A run keeps the tensors once, in `weights/` in the slot's folder, and needs your file only for its first job. The file's
sha256 is part of what a training is: with another file it is another training.

A frozen encoder is published in a file of its own, which crosses the line once, however many versions of the policy do.
R3D-18 is 66 MB as bf16, and 45 MB packed where its numbers are drawn ones. 67 million numbers are the most:
`timesformer` is not published, which a sentence of the log says, and is played from the run folder.

The small ones have no published files. `trainer demos fit` makes one from demonstrations, for any of them.

| it says | what to do |
| --- | --- |
| `there is no file of weights` | give its path on the machine that trains; `~` is your home there |
| `holds the weights of another net` | it names the first tensor that does not fit: another `arch`, or another file |
| `describes another net` | the folder's `config.json` says other heads, or another attention, than this net has |
| `cannot be read as weights` | it is damaged, or something else: compare its sha256 with the source's, copy it anew |
| `holds more than tensors` | save the net's `state_dict()` alone, or as safetensors |
| `is of torch.int32, and here of torch.float32` | it is quantised or packed: give the net's own numbers |
| `is no regular file` | it is a device, a pipe or a folder: copy the weights into a file |
| `numbers that are not finite` | the training that it is from broke down: take an older file |
| `its numbers are not those that were written` | the copy in the slot's folder changed: remove it, give your file |
| `cannot be read (Permission denied), and nothing was decided` | let this account read it, or start again |

All of these end with exit code 2 ([errors.md](errors.md)), but for the last, which ends with 5. Where that
one stays and names the copy in the slot's folder, remove it.
"""


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def least_of(arch: EncoderArch) -> str:
    if not arch.squares:
        return str(arch.least)
    return ", ".join(f"n x {square}" + f" from {side} on" * bool(side) for side, square in arch.squares)


def arches() -> str:
    rows = [
        (
            f"`{name}`",
            it.about,
            it.reads,
            f"{it.frames} x {it.size} x {it.size}" if it.reads == "clips" else f"{it.size} x {it.size}",
            f"{it.parameters:,}",
            f"{it.features:,}" + " or as you say" * it.chosen,
            least_of(it),
            "yes" if it.weights else "no",
        )
        for name, it in ARCHES.items()
    ]
    head = ("arch", "what it is", "reads", "meant for", "parameters", "features", "least", "published weights")
    return markdown(head, rows)


def settings() -> str:
    rows = [
        (f"`{name}`", f"`{'null' if field.default is None else str(field.default).lower()}`", field.description)
        for name, field in EncoderSettings.model_fields.items()
        if field.default is not PydanticUndefined
    ]
    return markdown(("setting", "default", "what it says"), rows)


def weights() -> str:
    rows = [
        (f"`{name}`", f"[`{it.file}`]({it.url})", f"{it.megabytes} MB", it.trained_on, it.licence)
        for name, it in ((name, arch.weights) for name, arch in ARCHES.items())
        if it is not None
    ]
    return markdown(("arch", "file", "size", "trained on", "licence of the weights"), rows)


def page() -> str:
    """The whole page."""
    file = ARCHES["r3d18"].weights
    assert file is not None
    parts = {
        "arches": arches(),
        "settings": settings(),
        "weights": weights(),
        "fetch": f"curl -LO {file.url}",
        "file": file.file,
        "trunk": str(Network.model_fields["trunk"].description),
        "encoders": str(Network.model_fields["encoders"].description),
    }
    text = PAGE
    for name, part in parts.items():
        text = text.replace(f"@{{{name}}}", part)
    return text


if __name__ == "__main__":
    target = ROOT / "docs" / "encoders.md" if figures.REPLACES else figures.OWN / "encoders.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(page(), encoding="utf-8")
    print(f"written: {target.relative_to(ROOT)}")

# SPDX-License-Identifier: Apache-2.0
"""Makes the data that the recipes read: pictures with masks, texts, and a tokenizer. All of it is
drawn from one seed, so every run trains on the same bytes. usage: data.py FOLDER
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PICTURES = 512  # JPEG, in folders of their classes, as torchvision's ImageFolder reads them
CLASSES = 8
SIDE = 256  # pixels
SENTENCES = 4096
WORDS = 1000
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


def pictures(folder: Path) -> None:
    generator = np.random.default_rng(1)
    for number in range(PICTURES):
        kind = number % CLASSES
        # Coarse noise made larger: it compresses as a photograph does, which plain noise does not.
        coarse = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        place = folder / "pictures" / f"class{kind}"
        place.mkdir(parents=True, exist_ok=True)
        picture.save(place / f"{number:04}.jpg", quality=90)
        masks = folder / "masks"
        masks.mkdir(exist_ok=True)
        bright = np.asarray(picture.convert("L")) > 127
        Image.fromarray(bright.astype(np.uint8) * 255).save(masks / f"{number:04}.png")


def texts(folder: Path) -> None:
    generator = random.Random(1)
    words = [f"w{number}" for number in range(WORDS)]
    sentences = [
        " ".join(generator.choices(words, k=generator.randint(24, 48))) for _ in range(SENTENCES)
    ]
    (folder / "sentences.txt").write_text("\n".join(sentences) + "\n")
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=64,
    ).save_pretrained(folder / "tokenizer")


def main() -> int:
    if len(sys.argv) != 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pictures(folder)
    texts(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""paceline.loader.ImageShards against Pillow and PyTorch: the same pixels of every kind of JPEG
file, size, filter and crop; what is broken for the one is for the other; places that are gone on
from.
"""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path
from typing import Any

import paceline
import PIL
import pytest
import torch
from paceline.loader import DataLoader, ImageShards
from PIL import Image, ImageOps

PIL_VERSION = int(PIL.__version__.partition(".")[0])
FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SIZES = [(1, 1), (3, 200), (17, 31), (64, 64), (97, 75), (250, 188), (500, 375), (241, 640)]


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Smooth areas, edges and noise."""
    draw = random.Random(f"{width} {height} {mode} {seed}")
    channels = []
    for _ in range(len(mode) if mode != "L" else 1):
        smooth = Image.linear_gradient("L").rotate(draw.randrange(360)).resize((width, height))
        noise = Image.frombytes("L", (width, height), draw.randbytes(width * height))
        box = Image.frombytes("L", (2, 2), draw.randbytes(4)).resize(
            (width, height), Image.Resampling.NEAREST
        )
        channels.append(Image.blend(Image.blend(smooth, noise, 0.3), box, 0.3))
    return Image.merge(mode, channels) if mode != "L" else channels[0]


def file_of(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **{"quality": 85, **options})
    return file.getvalue()


def every_kind() -> list[bytes]:
    kinds: list[dict[str, Any]] = [
        {"subsampling": 0},
        {"subsampling": 1},
        {"subsampling": 2},
        {"subsampling": 2, "progressive": True},
        {"subsampling": 0, "optimize": True, "quality": 20},
    ]
    files = [file_of(picture(*size), **kinds[number % 3]) for number, size in enumerate(SIZES)]
    files += [file_of(picture(187, 133, seed=seed), **kind) for seed, kind in enumerate(kinds)]
    files += [
        file_of(picture(150, 99, mode), progressive=late)
        for mode in ("L", "CMYK")
        for late in (False, True)
    ]
    return files


def shard(
    folder: Path, files: list[bytes], labels: list[str] | None = None, name: str = "shard.tar"
) -> Path:
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / name, "w") as archive:
        for number, data in enumerate(files):
            members = {"jpg": data, "cls": (labels[number] if labels else f"{number}\n").encode()}
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{number:04}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return folder / name


def by_pillow(
    data: bytes, view: dict[str, int], size: tuple[int, int], **options: Any
) -> torch.Tensor:
    image: Any = Image.open(io.BytesIO(data))
    if divisor := options.get("draft"):
        whole = image.size
        image.draft("RGB", (max(whole[0] // divisor, 1), max(whole[1] // divisor, 1)))
        assert image.size == tuple(-(-side // divisor) for side in whole)
        view = {**view, **{name: view[name] // divisor for name in ("x", "y", "width", "height")}}
    image = image.convert("RGB")
    if options.get("exif"):
        image = ImageOps.exif_transpose(image)
    x, y, left, top = view["x"], view["y"], view["left"], view["top"]
    image = image.crop((x, y, x + view["width"], y + view["height"]))
    # Rows first: what Pillow below 13 does in one call. Later ones begin with the columns where
    # they shrink much more.
    filter = FILTERS[options.get("filter", "bilinear")]
    resized = image.resize((view["full_width"], view["height"]), filter)
    resized = resized.resize((view["full_width"], view["full_height"]), filter)
    if PIL_VERSION < 13:
        assert resized.tobytes() == image.resize(resized.size, filter).tobytes()
    window = resized.crop((left, top, left + size[1], top + size[0]))
    if view["flip"]:
        window = window.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    flat = torch.frombuffer(bytearray(window.tobytes()), dtype=torch.uint8)
    return flat.view(size[0], size[1], 3).permute(2, 0, 1)


def compare(images: ImageShards, files: list[bytes], size: tuple[int, int], **options: Any) -> int:
    """Returns how many differing views there were."""
    views = set()
    for epoch in (0, 1):
        images.set_epoch(epoch)
        for batch, numbers in images:
            for got, number in zip(batch, numbers.tolist()):
                view = images.view(number)
                views.add(tuple(view.values()))
                expected = by_pillow(files[number], view, size, **options)
                assert torch.equal(got, expected), (
                    number,
                    view,
                    (got.int() - expected.int()).abs().max(),
                )
    return len(views)


@pytest.mark.parametrize("filter", FILTERS)
def test_pixels_are_pillows_for_every_kind_of_file_and_filter(tmp_path: Path, filter: str) -> None:
    files = every_kind()
    path = shard(tmp_path, files)
    for size, crop in (((56, 72), "random"), ((40, 33), "center"), ((150, 20), "none")):
        images = ImageShards([path], 7, size, crop=crop, filter=filter, target="cls", flip=0.5)
        different = compare(images, files, size, filter=filter)
        assert crop != "random" or different > 1.5 * len(files), "another region in another epoch"


def test_sizes_that_are_kept_or_grow(tmp_path: Path) -> None:
    sizes = [(96, 64), (64, 96), (96, 96), (95, 97), (5, 4), (1000, 96)]
    files = [file_of(picture(*size), subsampling=2) for size in sizes]
    path = shard(tmp_path, files)
    for crop in ("center", "none", "random"):
        images = ImageShards(
            [path], 4, 96, crop=crop, resize=96, filter="bicubic", target="cls", scale=(0.9, 1)
        )
        compare(images, files, (96, 96), filter="bicubic")


def test_the_decoder_divides_as_draft_does(tmp_path: Path) -> None:
    kinds: list[dict[str, Any]] = [
        {"subsampling": 0},
        {"subsampling": 2},
        {"subsampling": 1, "progressive": True},
    ]
    files = [
        file_of(picture(*size), **kind) for size in ((501, 377), (1030, 770)) for kind in kinds
    ]
    files.append(file_of(picture(640, 480, "L")))
    path = shard(tmp_path, files)
    seen = set()
    for crop in ("center", "random"):
        images = ImageShards(
            [path], 4, 60, crop=crop, resize=60, target="cls", scaled_decode=True, scale=(0.05, 1)
        )
        for batch, numbers in images:
            for got, number in zip(batch, numbers.tolist()):
                view = images.view(number)
                room = min(
                    view["width"] // view["full_width"], view["height"] // view["full_height"]
                )
                divisor = max(each for each in (1, 2, 4, 8) if each <= max(room, 1))
                seen.add(divisor)
                assert torch.equal(got, by_pillow(files[number], view, (60, 60), draft=divisor))
    assert seen == {1, 2, 4, 8}


def test_pictures_are_turned_as_their_exif_data_say(tmp_path: Path) -> None:
    files = []
    for orientation in range(0, 10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        files.append(file_of(picture(90, 61), exif=exif.tobytes()))
    path = shard(tmp_path, files)
    for crop in ("random", "center"):
        images = ImageShards([path], 5, 32, crop=crop, target="cls", exif=True)
        compare(images, files, (32, 32), exif=True)
    images = ImageShards([path], 5, 32, target="cls")
    compare(images, files, (32, 32))


def test_normalised_as_pytorch_does(tmp_path: Path) -> None:
    path = shard(tmp_path, every_kind())
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    plain = ImageShards([path], 8, 64, shuffle=False)
    floats = ImageShards([path], 8, 64, shuffle=False, mean=mean, std=std)
    channels = [torch.tensor(values).view(3, 1, 1) for values in (mean, std)]
    for values, bytes_ in zip(floats, plain):
        assert values.dtype == torch.float32
        assert torch.equal(values, bytes_.float().div(255).sub_(channels[0]).div_(channels[1]))


def test_what_is_broken_for_pillow_is_an_error_and_nothing_else(tmp_path: Path) -> None:
    files, broken = [], []
    draw = random.Random(1)
    for whole in (
        file_of(picture(80, 60)),
        file_of(picture(81, 61), progressive=True),
        file_of(picture(80, 60, "L")),
    ):
        cuts = [
            0,
            1,
            2,
            30,
            *(draw.randrange(2, len(whole)) for _ in range(12)),
            *(len(whole) - n for n in (1, 2, 3, 9)),
        ]
        files += [whole[:cut] for cut in cuts]
        for _ in range(12):  # wrong bits among the pixels
            wrong = bytearray(whole)
            wrong[draw.randrange(len(whole) * 3 // 4, len(whole) - 2)] ^= 1 << draw.randrange(8)
            files.append(bytes(wrong))
    path = shard(tmp_path, files)
    decoded = 0
    for number, data in enumerate(files):
        images = ImageShards([path], 1, 40, shuffle=False, crop="none", target="cls", threads=1)
        images.load_state_dict({**images.state_dict(), "first": number})
        try:
            Image.open(io.BytesIO(data)).convert("RGB")
        except Exception as error:
            broken.append(number)
            with pytest.raises(OSError, match=f"shard.tar: {number:04}: its picture: "):
                next(iter(images))
            assert isinstance(error, (OSError, SyntaxError))
            continue
        decoded += 1
        got = next(iter(images))[0][0]
        assert torch.equal(got, by_pillow(data, images.view(number), (40, 40))), number
    assert decoded > 10 and len(broken) > 30


def test_the_first_broken_sample_of_a_batch_is_named(tmp_path: Path) -> None:
    good = file_of(picture(30, 30))
    files = [good] * 20
    files[7] = files[11] = good[:100]
    path = shard(tmp_path, files)
    for _ in range(5):
        with pytest.raises(OSError, match="0007: its picture: the file ends early"):
            list(ImageShards([path], 20, 16, shuffle=False, threads=4))
    bad = shard(tmp_path / "labels", [good] * 3, ["1", " 22\r\n", "cat"])
    batches = iter(ImageShards([bad], 1, 16, shuffle=False, target="cls"))
    assert next(batches)[1].tolist() == [1] and next(batches)[1].tolist() == [22]
    with pytest.raises(OSError, match="0002.cls is no whole number"):
        next(batches)
    with pytest.raises(OSError, match="0000 has no .png or .webp"):
        list(ImageShards([path], 1, 16, shuffle=False, images=("png", "webp")))


def numbers_of(batches: Any) -> list[int]:
    return [number for _, numbers in batches for number in numbers.tolist()]


def test_the_same_whoever_makes_it_and_gone_on_from_anywhere(tmp_path: Path) -> None:
    files = [file_of(picture(60 + number, 50)) for number in range(23)]
    paths = [shard(tmp_path, files[:9], [str(n) for n in range(9)], "a.tar")]
    paths.append(shard(tmp_path, files[9:], [str(n) for n in range(9, 23)], "b.tar"))
    options: dict[str, Any] = {"target": "cls", "seed": 4}
    images = ImageShards(paths, 4, 24, threads=3, **options)
    images.set_epoch(2)
    batches = list(images)
    assert len(batches) == len(images) == 6 and sorted(numbers_of(batches)) == list(range(23))
    by_workers = ImageShards(paths, 4, 24, **options)
    by_workers.set_epoch(2)
    for loader in (
        DataLoader(by_workers, batch_size=None, num_workers=2),
        ImageShards(paths, 4, 24, threads=1, **options),
    ):
        if isinstance(loader, ImageShards):
            loader.set_epoch(2)
        for (one, numbers), (other, others) in zip(batches, loader, strict=True):
            assert torch.equal(one, other) and torch.equal(numbers, others)
    running: Any = iter(images)
    for count in range(1, 6):
        next(running)
        resumed = ImageShards(paths, 4, 24, **options)
        resumed.load_state_dict(images.state_dict())
        resumed.set_epoch(2)
        rest = list(resumed)
        assert numbers_of(rest) == numbers_of(batches[count:])
        assert all(torch.equal(one[0], other[0]) for one, other in zip(rest, batches[count:]))
    running.close()
    parts = [
        ImageShards(paths, 5, 24, rank=rank, ranks=2, drop_last=True, **options)
        for rank in range(2)
    ]
    assert [len(part) for part in parts] == [2, 2] and len(
        set(sum(map(numbers_of, parts), []))
    ) == 20
    # Three ranks make a batch each, then two go on: every picture once, and the same one.
    made, states = [], []
    for rank in range(3):
        part = ImageShards(paths, 2, 24, rank=rank, ranks=3, **options)
        part.set_epoch(2)
        made.append(next(iter(part)))
        states.append(part.state_dict(2))
    for rank in range(2):
        part = ImageShards(paths, 4, 24, rank=rank, ranks=2, **options)
        part.load_state_dict(states)
        made += list(part)
    assert len(numbers_of(made)) == 24 and set(numbers_of(made)) == set(range(23)), (
        "23 - 6 are uneven for two"
    )
    expected = {
        number: one for ones, numbers in batches for one, number in zip(ones, numbers.tolist())
    }
    for ones, numbers in made:
        assert all(
            torch.equal(one, expected[number]) for one, number in zip(ones, numbers.tolist())
        )


def test_batches_that_are_kept_stay_as_they_are(tmp_path: Path) -> None:
    path = shard(tmp_path, [file_of(picture(40, 40, seed=seed)) for seed in range(40)])
    images = ImageShards([path], 2, 32, prefetch=1)
    kept, copies = [], []
    for number, batch in enumerate(images):
        if number % 3 == 0:
            kept.append(batch[1])  # a view keeps the memory too
            copies.append(batch[1].clone())
    assert all(torch.equal(one, other) for one, other in zip(kept, copies, strict=True))
    next(iter(images))  # a pass that is left early ends its threads
    assert (
        "pictures of 40 samples: " in paceline.explain()
        and " in the JPEG decoder" in paceline.explain()
    )


@pytest.mark.parametrize(
    "options,why",
    [
        ({"size": 0}, "height is 0|size is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"crop": "left"}, "crop is 'left': it must be one of none, random, center"),
        ({"filter": "nearest"}, "filter is 'nearest'"),
        ({"crop": "center", "resize": 20}, "resize is 20"),
        ({"scale": (0.5, 0.1)}, "scale must be"),
        ({"size": (32,)}, r"size is \(32,\): it must be a number, or height and width"),
        ({"ratio": (0, 1)}, "ratio must be"),
        ({"mean": (0, 0, 0)}, "std None"),
        ({"mean": (0, 0, 0), "std": (1, 0, 1)}, "std not zero"),
        ({"flip": 2}, "flip is 2"),
        ({"threads": 0}, "threads is 0"),
        ({"images": "jpg"}, "list of extensions"),
        ({"rank": 3, "ranks": 2}, "rank is 3"),
    ],
)
def test_wrong_arguments_of_images_are_named(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    path = shard(tmp_path, [file_of(picture(8, 8))])
    with pytest.raises(ValueError, match=why):
        ImageShards([path], **{"batch_size": 1, "size": 32, **options})

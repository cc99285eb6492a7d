#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""House rule: what the documents name exists, and what is there to be used is documented.
`scripts/lint rules` runs it.

Documents are *.md and the chart's NOTES.txt; in backticks, code blocks and links they name things.
Each of RULES yields lines of "FILE:LINE: what is wrong". A placeholder is in capitals or <>; a glob
and {a,b} stand for what they match. usage: scripts/names.py (Debian's interpreter, which has
python3-yaml)
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

# Names of others that documents explain and that no code of ours has: an identifier, or all that
# stands in one pair of backticks or one line of a block, which then no rule looks into.
FOREIGN = {
    "DataParallel",
    "MSG_ZEROCOPY",
    "OMP_WAIT_POLICY",
    "SO_EE_CODE_ZEROCOPY_COPIED",
    "aoti_torch_get_data_ptr",
}
FOREIGN |= {"cuCtxRecordEvent", "cuIpcGetEventHandle", "hasCallbacks"}
HINT = "; what is of another project goes into FOREIGN of scripts/names.py"
# Folders of a runtime and of a node, not of the repository.
OUTSIDE = {"bin", "lib", "runtimes"}
# Names in our own rules and in their cases prove nothing.
OWN = ("scripts/names.py", "tests/scripts/")
PRODUCT = (
    "accel/include/",
    "accel/python/",
    "accel/src/",
    "agent/",
    "cli/",
    "common/",
    "launcher/",
    "operator/",
)
# Programs: which files have their flags, which ones their words, and how. One that is not here
# takes no words, and its flags are in its folder.
PROGRAMS = {
    "paceline": ("cli/main.cpp", "cli/main.cpp", r'add_subcommand\(\s*"(\w+)"'),
    "paceline-agent": ("agent/main.cpp", "", "$"),
    "paceline-launcher": ("launcher/main.cpp", "launcher/main.cpp", r'"(run|install)"'),
    "paceline-operator": ("operator/main.cpp", "", "$"),
    "paceline-probe": ("agent/registration/*", "", "$"),
    "paceline-record": ("tests/gpu/record/*", "", "$"),
    "scripts/build": (
        "scripts/build",
        "*CMake*",
        r'"name": "(\w+)"|\badd_\w+\((\w+)|\bpaceline_\w+\((\w+)',
    ),
    "scripts/cluster": ("scripts/cluster", "scripts/cluster", r"^  (\w+)\) "),
    "scripts/images": ("scripts/images", "scripts/images", r'^    "(\w+)": \w+,$'),
    "scripts/lint": ("scripts/lint", "scripts/lint", r"^check_(\w+)\(\)|== (fix) "),
    "scripts/sanitize": ("scripts/sanitize", "scripts/sanitize", r"\b([at]san)\b"),
    "scripts/test": ("scripts/test", "scripts/test", r'^    "(\w+)": Suite\('),
    "tests/cluster/cluster": (
        "tests/cluster/*",
        "tests/cluster/cluster",
        r'^ +(?:.*add_parser\(\s*|\()"([\w-]+)",',
    ),
}
SOURCE = r"\.(?:cpp|hpp|h|cu|py|md|yaml|json|svg|txt)$"


@dataclass(frozen=True)
class Code:
    """What a document sets as code: one pair of backticks, or one line of a block."""

    file: str
    line: int
    text: str
    block: bool = False

    def wrong(self, what: str) -> str:
        return f"{self.file}:{self.line}: {what}{HINT}"


class Tree:
    """The repository's files: those that git knows, and new ones that it does not ignore."""

    def __init__(self, root: Path) -> None:
        self.root = root
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        self.files = [name for name in listed if (root / name).is_file()]
        self.documents = [name for name in self.files if name.endswith((".md", "NOTES.txt"))]
        self.folders = {part for name in self.files for part in Path(name).parts[:-1]}
        self.text = cache(self._read)
        self.all_of = cache(self._join)

    def _read(self, name: str) -> str:
        try:
            return (self.root / name).read_text()
        except (UnicodeDecodeError, OSError):
            return ""

    def code(self, *prefixes: str) -> Iterator[str]:
        """Files below these that are neither documents nor our own."""
        ours = (
            name for name in self.files if name.startswith(prefixes) and not name.startswith(OWN)
        )
        return (name for name in ours if name not in self.documents)

    def _join(self, pattern: str) -> str:
        return "\n".join(map(self.text, fnmatch.filter(self.code(""), pattern)))

    @cached_property
    def places(self) -> set[str]:
        """Files, also without extension, and folders; and every end of their paths: a part's
        documents name its files as seen from it.
        """
        folders = {str(folder) for name in self.files for folder in Path(name).parents}
        whole = {*self.files, *folders, *(str(Path(name).with_suffix("")) for name in self.files)}
        return {
            place[at:]
            for place in whole
            for at in [0, *(slash.end() for slash in re.finditer("/", place))]
        }

    @cached_property
    def named(self) -> list[Code]:
        every = (piece for name in self.documents for piece in pieces(name, self.text(name)))
        return [piece for piece in every if piece.text not in FOREIGN]


def pieces(name: str, text: str) -> Iterator[Code]:
    """What a document sets as code, but for diagrams, whose words are for the eye."""
    fence, after_blank = "", True
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence = "" if fence else line[3:].strip() or "text"
        elif fence or (after_blank and line.startswith("    ")):
            if fence != "mermaid" and line.strip():
                yield Code(name, number, line.strip(), block=True)
        else:
            yield from (Code(name, number, span) for span in re.findall(r"`([^`]+)`", line))
            after_blank = not line.strip()


def makefile(tree: Tree) -> Iterator[str]:
    """Targets are phony, have a recipe and a line for `make help`; whoever names one names one of
    these.
    """
    text = tree.text("Makefile")
    phony = {
        target for line in re.findall(r"^\.PHONY:(.*)$", text, re.M) for target in line.split()
    }
    rules = {
        rule[1]: rule for rule in re.finditer(r"^([a-z][\w-]*):(.*)\n((?:\t.*\n)*)", text, re.M)
    }
    for target in sorted(phony | rules.keys()):
        if target not in rules or not rules[target][3].strip():
            yield f"Makefile: {target} has no recipe: make would do nothing and succeed"
        elif not re.search(r"## \S", rules[target][2]):
            yield f"Makefile: {target} has no `## …` for make help"
        elif target not in phony:
            yield (
                f"Makefile: {target} is not in .PHONY: a file of that name would keep it from"
                " running"
            )
    for piece in tree.named:
        found = re.match(r"make ([a-z][\w-]*)", piece.text)
        if found and found[1] not in rules:
            yield piece.wrong(f"the Makefile has no target {found[1]}")
    for name in tree.code(""):
        for target in re.findall(r"`make ([a-z][\w-]*)", tree.text(name)):
            if target not in rules and f"make {target}" not in FOREIGN:
                yield f"{name}: the Makefile has no target {target}{HINT}"


def alternatives(word: str) -> list[str]:
    """a/{b,c} as a shell reads it."""
    found = re.search(r"\{([^{}]*)\}", word)
    if not found:
        return [word]
    start, end = word[: found.start()], word[found.end() :]
    return [whole for part in found[1].split(",") for whole in alternatives(start + part + end)]


def paths(tree: Tree) -> Iterator[str]:
    """Files and folders of the repository, in documents, and in other files where they begin at its
    root.
    """
    for piece in tree.named:
        for raw in piece.text.split():
            word = re.sub(r":\d+$", "", raw.strip("\"'(),;:.")).removeprefix("./").rstrip("/")
            if re.search(r"[<>$…=@:\[\]]|(?:^|[/.])[A-Z]{3,}|^[~/-]", word) or word.startswith(
                "build/"
            ):
                continue
            source = re.search(SOURCE, word) is not None
            if "/" in word:
                ours = source or word.split("/")[0] in tree.folders
            else:
                ours = (source and raw == piece.text) or (raw == f"{word}/" and word not in OUTSIDE)
            for place in alternatives(word) if ours else ():
                if place not in tree.places and not fnmatch.filter(tree.places, place):
                    yield piece.wrong(f"there is no {place}")
    tops = "bench|crds|dashboards|docs|examples|scripts|tests"
    top = rf"(?<![\w./<\"{{}}-])((?:{tops})/[\w./-]*\w)(?![\w*{{$/-])"
    for name in tree.code(""):
        for place in re.findall(top, tree.text(name)):
            if (
                place not in tree.places
                and place not in FOREIGN
                and not re.search(r"[A-Z]{3,}", place)
            ):
                yield f"{name}: there is no {place}{HINT}"


def headings(text: str) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    found = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def links(tree: Tree) -> Iterator[str]:
    """Links within the repository lead to a file, and to a heading of it."""
    for name in tree.documents:
        for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", tree.text(name)):
            where, _, anchor = link.partition("#")
            target = (tree.root / name).parent / where if where else tree.root / name
            if not target.exists() or (anchor and anchor not in headings(target.read_text())):
                yield f"{name}: the link {link} leads nowhere"


def program_of(piece: Code, tree: Tree, words: list[str]) -> str:
    """Which of our programs a line starts; empty if none."""
    beside = str(Path(piece.file).parent / words[0])
    name = beside if beside in PROGRAMS else words[0].removeprefix("./")
    if name.rsplit("/", 1)[-1] in PROGRAMS and not name.startswith(("scripts/", "tests/")):
        return name.rsplit("/", 1)[-1]
    return (
        name
        if name in PROGRAMS or (name in tree.files and re.match(r"bench/|scripts/|tests/", name))
        else ""
    )


def commands(tree: Tree) -> Iterator[str]:
    """Our programs take the words and flags that documents give them."""
    sources = tree.all_of("*")
    for piece in tree.named:
        alone = re.match(r"--[a-z][a-z-]*", piece.text)
        if alone and alone[0] not in sources:
            yield piece.wrong(f"nothing takes {alone[0]}")
        for line in re.split(r"[|;&]+\s|\$\(", piece.text):
            words = re.sub(r"^(?:[A-Z_]+=\S* )*|\s#.*", "", line).split()
            program = program_of(piece, tree, words) if words else ""
            if not program:
                continue
            flags, where, pattern = PROGRAMS.get(program, (re.sub("/run$", "/*", program), "", "$"))
            taken = {
                word
                for found in re.finditer(pattern, tree.all_of(where), re.M)
                for word in found.groups()
            }
            before = ""
            for word in words[1:]:
                flag = re.match(r"--[a-z][a-z-]*", word)
                if word == "--":  # the rest is another program's
                    break
                if flag and flag[0] not in tree.all_of(flags):
                    yield piece.wrong(f"{program} knows no {flag[0]}")
                # What follows a flag may be its value.
                bare = re.fullmatch(r"([a-z][\w-]*)[,.:]?", word)
                if bare and not before.startswith("-") and bare[1] not in taken:
                    yield piece.wrong(f"{program} knows no {bare[1]}")
                before = word


def identifiers(tree: Tree) -> Iterator[str]:
    """Functions, types, variables and tests occur in the code; what is called paceline occurs in it
    whatever dashboards say.
    """
    known = set(re.findall(r"\w+", tree.all_of("*")))
    ours = known - set(re.findall(r"\w+", tree.all_of("dashboards/*")))
    ours |= set(re.findall(r"\w+", "".join(map(tree.text, tree.code(*PRODUCT)))))
    for piece in tree.named:
        for word in re.findall(r"[A-Za-z_]\w+", piece.text if not piece.block else ""):
            if not re.search(r"_|[a-z][A-Z]", word) or word in FOREIGN:
                continue
            among = ours if word.lower().startswith("paceline_") else known
            begins = word.endswith("_") and any(other.startswith(word) for other in among)
            if (
                not begins
                and word not in among
                and series(word) not in among
                and word not in tree.places
            ):
                yield piece.wrong(f"nothing in the code is called {word}")


def series(name: str) -> str:
    """The metric that a series of a histogram belongs to."""
    return re.sub(r"_(?:bucket|sum|count)$", "", name)


def metrics(tree: Tree) -> Iterator[str]:
    """What is exported is documented, and what dashboards ask for is exported."""
    source = "".join(map(tree.text, tree.code("agent/", "common/", "launcher/", "operator/")))
    exported = set(re.findall(r'"(paceline_[a-z0-9_]+)"', source))
    design = tree.text("docs/operate/metrics.md")
    for metric in sorted(exported):
        if f"`{metric}`" not in design:
            yield f"docs/operate/metrics.md: {metric} is exported and not documented"
    for name in fnmatch.filter(tree.code("dashboards/"), "*.json"):
        for asked in sorted(set(re.findall(r"\bpaceline_[a-z0-9_]+", tree.text(name)))):
            if series(asked) not in exported:
                yield f"{name}: {asked} is exported by nobody"


def environment(tree: Tree) -> Iterator[str]:
    """Variables are in common/contract/env.hpp with their meaning, or in a document; those that
    people set are in a document.

    What accel/ reads is in env.hpp: `paceline run` and templates let nothing else of ours through
    to the training process.
    """
    contract = tree.text("common/contract/env.hpp")
    variables = dict(re.findall(r'Variable (k\w+)\{\s*"(PACELINE_\w+)"', contract))
    documented = set(re.findall(r"PACELINE_[A-Z0-9_]+", "".join(map(tree.text, tree.documents))))
    for users in re.findall(r"kUsers\{(.*?)\}", contract, re.S):
        for constant in re.findall(r"\bk[A-Z]\w+", users):
            if variables[constant] not in documented:
                yield (
                    f"common/contract/env.hpp: {variables[constant]} is for people to set, and no"
                    " document names it"
                )
    for name in tree.code(*PRODUCT):
        for variable in re.findall(r'"(PACELINE_[A-Z0-9_]+)"', tree.text(name)):
            inside = name.startswith("accel/")
            if variable not in variables.values() and (inside or variable not in documented):
                yield (
                    f"{name}: {variable} is not in"
                    f" common/contract/env.hpp{'' if inside else ', nor in a document'}"
                )


def has(node: Any, steps: list[str]) -> bool:
    """Whether a schema has that field; what it leaves to Kubernetes (a pod's spec) has any."""
    for step in steps:
        node = node.get("items", node)
        if node.get("x-kubernetes-preserve-unknown-fields"):
            return True
        if step not in node.get("properties", {}):
            return False
        node = node["properties"][step]
    return True


def schema_fields(node: Any) -> Iterator[str]:
    """The names of a schema's fields, without those of Kubernetes' own types."""
    for name, below in node.get("items", node).get("properties", {}).items():
        yield name
        if name not in ("template", "conditions"):
            yield from schema_fields(below)


def written_fields(node: Any, above: list[str]) -> Iterator[list[str]]:
    """The path of every field in an example."""
    for key, value in node.items() if isinstance(node, dict) else ():
        yield [*above, key]
        for below in value if isinstance(value, list) else [value]:
            yield from written_fields(below, [*above, key])


def fields(tree: Tree) -> Iterator[str]:
    """The API's fields that documents name are in crds/ or, at the top of a spec, of
    docs/reference/api.md's target; that page has all of crds/.
    """
    today, _, target = tree.text("docs/reference/api.md").partition("## The target")
    documents = {name: yaml.safe_load(tree.text(name)) for name in tree.code("crds/")}
    schemas = {
        name: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name, crd in documents.items()
    }
    words = set(re.findall(r"\w+", today))
    for name, root in schemas.items():
        below = [
            root["properties"][part] for part in ("spec", "status") if part in root["properties"]
        ]
        for field in sorted({field for part in below for field in schema_fields(part)} - words):
            yield f"docs/reference/api.md: {field} of {name} is not among what acts today"

    def check(steps: list[str], planned: bool = False) -> Iterator[str]:
        if not planned and not any(has(root, steps) for root in schemas.values()):
            yield f"no CRD has {'.'.join(steps)}"

    for piece in tree.named:
        found = [
            path.split(".")
            for path in re.findall(r"(?<![\w.])\.?((?:spec|status)(?:\.[A-Za-z]+)+)", piece.text)
        ]
        for inline in re.findall(r"\bacceleration: *\{([^}]*)\}", piece.text):
            found += [
                ["spec", "acceleration", key] for key in re.findall(r"(?:^|, *)(\w+):", inline)
            ]
        for steps in (
            found if "kubectl get " not in piece.text else ()
        ):  # of Kubernetes' own kinds too
            planned = re.search(rf"^  {steps[1]}:", target, re.M) is not None
            yield from map(piece.wrong, check(steps, planned))
    for block in re.findall(r"^```yaml\n(spec:\n.*?)^(?:status:|```)", today, re.S | re.M):
        for steps in written_fields(yaml.safe_load(block), []):
            yield from (f"docs/reference/api.md: {wrong}" for wrong in check(steps))


def values(tree: Tree) -> Iterator[str]:
    """Values of the chart are in its values.yaml."""
    chart = yaml.safe_load(tree.text("helm/paceline/values.yaml"))
    for piece in tree.named:
        for path in re.findall(
            rf"(?<![\w./])((?:{'|'.join(chart)})(?:\.[a-z]\w+)+)(?![\w(/])", piece.text
        ):
            if re.search(SOURCE, path):
                continue
            node = chart
            for step in path.split("."):
                node = node.get(step) if isinstance(node, dict) else None
            if node is None:
                yield piece.wrong(f"helm/paceline/values.yaml has no {path}")


RULES = (makefile, paths, links, commands, identifiers, metrics, environment, fields, values)


def main() -> int:
    tree = Tree(Path(__file__).resolve().parent.parent)
    wrong = [complaint for rule in RULES for complaint in rule(tree)]
    if wrong:
        print("documents and code name what the other has not:", *wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

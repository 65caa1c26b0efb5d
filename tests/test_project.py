"""The project as a whole: its documents say what is there, and its files belong to no machine in particular."""

import json
import os
import pathlib
import re
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
TOP_FOLDERS = ("bench", "cmake", "deploy", "docs", "examples", "include", "python", "tests", "tools", "trireme")

LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^    ([^ #|+].*)$", re.MULTILINE)
QUOTED = re.compile(r"`([^`\s]+)`")
CODE_BLOCK = re.compile(r"^    .*(?:\n+    .*)*", re.MULTILINE)
# What a translation leaves as it is.
NAME_OR_NUMBER = re.compile(r"`[^`]+`|\d+(?:\.\d+)*")
GUIDE = REPOSITORY / "docs" / "guides" / "README.md"
# Folders in which somebody builds or lives, but for the home of the images' user. Written so that this file does not contain them.
MACHINE_PATH = re.compile(r"(?<![\w.}~/-])/(?:work|root|home/(?!trireme\b)\w+|tmp/peers)(?![\w.-])")
IMAGE = re.compile(r"trireme/(?:trainer|huggingface):\d[\d.]*")


def tracked() -> list[pathlib.Path]:
    """Every file of the project: what git has, or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git repository")
    return [REPOSITORY / name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).is_file()]


def documents() -> list[pathlib.Path]:
    return [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "bench").glob("*.md"), *(REPOSITORY / "examples").glob("*.md"), *(REPOSITORY / "deploy").rglob("*.md")]


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(REPOSITORY))


def anchors(document: pathlib.Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def outline(document: pathlib.Path) -> dict[str, list]:
    """What a guide has in every language, in order. The names and numbers of a sentence are a set: each language puts them where it likes."""
    text = document.read_text()
    prose = CODE_BLOCK.sub("", text)
    return {
        "headings": re.findall(r"^#+(?= )", prose, re.MULTILINE),
        "code blocks": [re.sub(r" +#.*", " #", block) for block in CODE_BLOCK.findall(text)],
        "table rows": [set(NAME_OR_NUMBER.findall(row)) for row in re.findall(r"^\|.*", prose, re.MULTILINE)],
        "sections": [set(NAME_OR_NUMBER.findall(section)) for section in re.split(r"^#+ .*", prose, flags=re.MULTILINE)],
        "links": sorted({*LINK.findall(text), document.name}),
    }


def repository_paths(words: list[str]) -> list[str]:
    """Those words that name something of this repository, not of a build, an image or a folder that a shell variable holds."""
    words = [word for word in words if not re.search(r"^\$|\*|\.\.\.|/\.", word) and not IMAGE.fullmatch(word)]
    names = [word.removeprefix("./").rstrip("/").split(":")[0] for word in words]
    return [name for name in names if name.endswith(".sh") or name.split("/")[0] in TOP_FOLDERS and "/" in name]


def test_environment_page_is_current():
    printed = subprocess.run([BUILD / "tests" / "print_environment"], capture_output=True, text=True, check=True).stdout
    page = (REPOSITORY / "docs" / "environment.md").read_text()
    assert page == printed, "run build/release/tests/print_environment > docs/environment.md"


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_links_lead_somewhere(document):
    for target in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = document.parent / file if file else document
        assert path.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(path), f"{path.name} has no heading for #{anchor}"


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_what_a_document_names_exists(document):
    text = document.read_text()
    commands = [command.partition(" #")[0] for command in COMMAND.findall(text)]
    words = [word for command in commands for word in command.split()] + QUOTED.findall(text)
    for name in repository_paths(words):
        assert (REPOSITORY / name).exists(), f"{name} does not exist"
    for command in commands:
        if command.startswith("./"):
            assert os.access(REPOSITORY / command.split()[0], os.X_OK), f"{command} cannot be run"


@pytest.mark.parametrize("document", sorted(set(GUIDE.parent.glob("*.md")) - {GUIDE}), ids=name_of)
def test_a_translated_document_has_what_the_original_has(document):
    original, translated = outline(GUIDE), outline(document)
    for part, expected in original.items():
        found = translated[part]
        assert len(found) == len(expected), f"{len(found)} {part}, {GUIDE.name} has {len(expected)}"
        for there, here in zip(expected, found):
            assert here == there, f"{part}: {here}, {GUIDE.name} has {there}"


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_presets_that_a_document_names_exist(document):
    presets = json.loads((REPOSITORY / "CMakePresets.json").read_text())
    known = {preset["name"] for preset in presets["configurePresets"]}
    assert set(re.findall(r"--preset (\w[\w-]*)", document.read_text())) <= known


def test_the_readme_has_its_figures():
    assert "@FIGURE" not in (REPOSITORY / "README.md").read_text(), "take them from bench/results/collectives.json"


def test_every_file_ends_with_a_newline():
    without = [name_of(path) for path in tracked() if path.stat().st_size and not path.read_bytes().endswith(b"\n")]
    assert not without


def test_no_file_names_a_folder_of_some_machine():
    found = []
    for path in tracked():
        for match in MACHINE_PATH.finditer(path.read_text(encoding="utf-8", errors="replace")):
            found.append(f"{name_of(path)}: {match[0]}")
    assert not found

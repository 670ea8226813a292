"""Trees that are hard to remove."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.worker.building.removal import remove
from tests.builds.making import Repository, build, one_step

pytestmark = pytest.mark.claim("B5")
DEEP = "import os\nfor _ in range(5000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('file', 'w').close()"


def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    (tree := tmp_path / "tree").mkdir()
    subprocess.run([sys.executable, "-c", DEEP], cwd=tree, check=True)
    (tree / "beside").mkdir()
    (tree / "beside" / "file").touch()
    remove(tree)
    assert not tree.exists()


def test_folders_without_rights_are_removed(tmp_path: Path) -> None:
    (inner := tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (inner / "file").touch()
    for each in (inner, inner.parent, inner.parent.parent):
        each.chmod(0)
    remove(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_links_are_removed_and_what_they_lead_to_stays_as_it_is(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (key := outside / "key").write_text("secret")
    key.chmod(0o400)
    outside.chmod(0o500)
    (left := tmp_path / "left").mkdir()
    (left / "file").symlink_to(key)
    (left / "folder").symlink_to(outside)
    remove(left)
    assert not os.path.lexists(left)
    assert (key.read_text(), key.stat().st_mode & 0o777, outside.stat().st_mode & 0o777) == ("secret", 0o400, 0o500)
    (link := tmp_path / "link").symlink_to(outside)
    remove(link)
    assert (os.path.lexists(link), key.exists()) == (False, True)
    remove(tmp_path / "nothing")


def test_a_build_that_leaves_a_deep_tree_ends_as_any_other(repository: Repository, folder: Path) -> None:
    line = f"{sys.executable} deep.py; exit 3"
    result = build(repository.order(one_step(line), {"deep.py": DEEP}), folder)
    assert (result.outcome, result.error) == ("failed", "step only: exited with 3: " + line)
    assert os.listdir(folder.parent) == [folder.name]
    assert sorted(os.listdir(folder)) == ["completed", "generated", "log"]

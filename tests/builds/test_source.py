"""What a repository says of itself, before anything of it is built."""

from pathlib import Path

import pytest

from holdfast.worker.building.source import default_branch
from tests.builds.making import Repository


@pytest.mark.claim("B8")
class TestTheDefaultBranchOfARepository:
    @pytest.mark.parametrize("scheme", ["", "file://"])
    def test_is_the_one_that_its_head_names(self, repository: Repository, scheme: str) -> None:
        repository.commit(None)
        repository.git("checkout", "--quiet", "-b", "release/1")
        assert default_branch(f"{scheme}{repository.path}") == "release/1"

    def test_is_none_where_head_names_no_branch(self, repository: Repository) -> None:
        repository.git("checkout", "--quiet", "--detach", repository.commit(None))
        assert default_branch(str(repository.path)) is None

    @pytest.mark.parametrize("address", ["{0}/nowhere", "http://127.0.0.1:9/x.git", "--upload-pack=touch {0}/owned"])
    def test_is_none_where_nothing_answers(self, tmp_path: Path, address: str) -> None:
        assert default_branch(address.format(tmp_path)) is None
        assert not (tmp_path / "owned").exists()

"""A program with many open files."""

import os
import resource

import pytest

from holdfast import App

FEW = 1024  # descriptors that select() knows


def test_a_session_with_a_high_descriptor_is_kept(url: str, instance: str) -> None:
    """Else it would connect anew whenever it is used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEW + 200:
        pytest.skip("this system allows too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FEW + 200), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < FEW:
            held.append(os.open(os.devnull, os.O_RDONLY))
        with App(url, name=instance) as app:

            @app.queue("work").job()
            def noop() -> None: ...

            noop.enqueue()
            before = app.store.generation
            for _ in range(5):
                noop.enqueue()
            assert app.store.generation == before
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""A test that hangs is ended, and the log says where its threads stood."""

import threading
from pathlib import Path

import pytest

from tests.bounds import threads_at_work

ROOT = Path(__file__).parent.parent


def run(
    pytester: pytest.Pytester, source: str, *options: str, more_seconds: int = 60, exit_seconds: int = 60
) -> tuple[int, str]:
    """The exit code of tests with short bounds, and all that was printed."""
    pytester.makeconftest(
        "import tests.bounds as bounds\n"
        f"bounds._MORE_SECONDS, bounds._EXIT_SECONDS = {more_seconds}, {exit_seconds}\n"
        "bounds._IDLE_SECONDS = 0.5\n"
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(source)
    pytester._monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plugins = ("-p", "tests.bounds", "-p", "no:cacheprovider")
    ended = pytester.runpytest_subprocess(*plugins, "--timeout", "60", *options)
    return int(ended.ret), ended.stdout.str() + ended.stderr.str()


def test_a_test_that_takes_too_long_fails_and_those_after_it_are_run(pytester: pytest.Pytester) -> None:
    """The idle thread that one of them leaves is nothing to complain about."""
    code, said = run(
        pytester,
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor

        import pytest

        threads = ThreadPoolExecutor(1)

        @pytest.mark.timeout(1)
        def test_hangs():
            threading.Event().wait(60)

        def test_goes_well():
            threads.submit(lambda: None).result()
        """,
    )
    assert code == 1, said
    assert "1 failed, 1 passed in" in said
    assert "Timeout (>1.0s)" in said


def test_a_test_that_goes_on_after_its_failure_is_ended_with_its_stacks(pytester: pytest.Pytester) -> None:
    code, said = run(
        pytester,
        """
        import threading
        import pytest

        @pytest.fixture
        def never_given_back():
            yield
            threading.Event().wait(60)

        def test_fails(never_given_back):
            assert False
        """,
        more_seconds=1,
    )
    assert code == 1, said
    assert "Timeout (0:00:01)!" in said
    assert "in never_given_back" in said


def test_a_test_that_cannot_be_interrupted_ends_its_worker_only(pytester: pytest.Pytester) -> None:
    code, said = run(
        pytester,
        """
        import signal
        import threading

        import pytest

        @pytest.mark.timeout(1)
        def test_cannot_be_interrupted():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            threading.Event().wait(60)

        def test_goes_well():
            pass
        """,
        "-n",
        "1",
        more_seconds=1,
    )
    assert code == 1, said
    assert "1 failed, 1 passed in" in said
    assert "in test_cannot_be_interrupted" in said


def test_a_thread_that_is_left_at_work_is_an_error_and_the_process_ends(pytester: pytest.Pytester) -> None:
    code, said = run(
        pytester,
        """
        import threading

        def left_alone():
            threading.Event().wait(60)

        def test_starts_a_thread():
            threading.Thread(target=left_alone, name="left").start()
        """,
        exit_seconds=3,
    )
    assert code == 1, said
    assert "1 passed, 1 error in" in said
    assert "threads that still work after the last test:\nE         left\n" in said
    assert "in left_alone" in said
    assert "Timeout (0:00:03)!" in said, "the process was ended: Python would wait for the thread"


def test_a_thread_is_at_work_until_it_has_ended() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(10,), name="named-by-the-test")
    thread.start()
    assert any(each.startswith("named-by-the-test\n") for each in threads_at_work())
    go.set()
    thread.join(10)
    assert not any("named-by-the-test" in each for each in threads_at_work())

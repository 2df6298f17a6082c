import os
import subprocess
import sys
import threading

import pytest

from rank4class.pipelines.storage.claims import Claims


def test_a_name_is_claimed_once_and_again_after_its_release(tmp_path):
    folder = str(tmp_path / "grid")
    with Claims(folder) as one, Claims(folder) as other:
        assert one.take("a")
        assert not one.take("a")
        assert not other.take("a")
        assert other.take("b")
        one.release("a")
        assert other.take("a")
    assert os.listdir(folder) == []


@pytest.mark.nightly
def test_a_claim_ends_with_its_process(tmp_path):
    program = (
        "import sys\n"
        "from rank4class.pipelines.storage.claims import Claims\n"
        f"claims = Claims({str(tmp_path)!r})\n"
        "print(claims.take('a'), flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)
    try:
        assert process.stdout.readline() == "True\n"
        assert not Claims(str(tmp_path)).take("a")
    finally:
        process.kill()
        process.communicate()
    with Claims(str(tmp_path)) as claims:
        assert claims.take("a")


def test_a_claim_of_a_removed_file_is_no_claim(tmp_path, monkeypatch):
    """Another process releases the claim, and a third one claims it, after this one has opened the file."""
    first, second, third = (Claims(str(tmp_path)) for _ in range(3))
    assert first.take("a")
    opened = second._open("a")
    first.release("a")
    assert third.take("a")
    monkeypatch.setattr(second, "_open", lambda name: opened)
    assert not second.take("a")


def test_one_process_at_a_time_is_in_the_block(tmp_path):
    entered = []

    def enter():
        with Claims(str(tmp_path)).exclusive():
            entered.append("other")

    with Claims(str(tmp_path)).exclusive():
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(0.1)
        entered.append("this")
    thread.join()
    assert entered == ["this", "other"]


def test_object_storage_has_no_claims():
    claims = Claims("gs://bucket/grid")
    assert claims.take("a")
    assert not claims.take("a")
    assert Claims("gs://bucket/grid").take("a")

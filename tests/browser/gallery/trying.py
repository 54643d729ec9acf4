"""`ekiden dev`: the page Try, and what it shows of calls and tasks."""

import tempfile
from pathlib import Path

from tests.browser.gallery.camera import Camera
from tests.cli.developing.running import developing

HARSH = Path(__file__).with_name("harsh.py")
ROOT = Path(__file__).parent.parent.parent.parent


def trying(camera: Camera) -> None:
    """All pictures of `ekiden dev`."""
    with tempfile.TemporaryDirectory() as folder:
        empty = "from ekiden import Server\n\nserver = Server('empty')\n"
        with developing(Path(folder), server=empty) as dev:
            camera.open(dev.link, "nothing to call yet")
            camera.take("try-nothing")
            for page in ("calls", "tasks"):
                camera.open(f"{dev.origin}/{page}", f"No {page} yet")
                camera.take(f"dev-{page}-none")
            camera.open(f"{dev.origin}/calls/unknown", "not known")
            camera.take("dev-call-unknown")
            camera.browser.delete_all_cookies()
            camera.open(dev.origin, "Open this page with the link")
            camera.take("dev-no-token")
    with tempfile.TemporaryDirectory() as folder:
        variables = {"PYTHONPATH": str(ROOT)}
        with developing(Path(folder), server=HARSH.read_text(), variables=variables) as dev:
            _try_all(camera, dev.link, dev.origin)
            _calls(camera, dev.origin)
            dev.file.write_text(HARSH.read_text() + "\n\ndef broken(:\n")
            camera.open(dev.origin, "SyntaxError")
            camera.take("try-mistake")


def _choose(camera: Camera, origin: str, kind: str, name: str) -> None:
    camera.open(f"{origin}/?kind={kind}&name={name}", "Call as a client of")


def _try_all(camera: Camera, link: str, origin: str) -> None:
    camera.open(link, "Ask anything")
    for kind, name in (
        ("tool", "every"),
        ("tool", "survey"),
        ("tool", "arabic"),
        ("tool", "party"),
        ("prompt", "greet"),
        ("template", "harsh://orders/%7Bnumber%7D"),
    ):
        _choose(camera, origin, kind, name)
        camera.take(f"try-{name.partition(':')[0]}")
    _choose(camera, origin, "tool", "every")
    camera.browser.execute_script("document.getElementById('call').noValidate = true")
    camera.click("#call button.is-main")
    camera.wait_for("Something is not right yet")
    camera.take("try-every-wrong")
    _choose(camera, origin, "tool", "party")
    camera.click("#call button.is-main")
    camera.wait_for("Result")
    camera.take("try-picture")
    long_name = "a_tool_with_a_name_that_is_as_long_as_names_may_become_in_large_companies_with_many_teams"
    _choose(camera, origin, "tool", long_name)
    camera.click("#call button.is-main")
    camera.wait_for("Result")
    camera.take("try-long")
    _choose(camera, origin, "tool", "fail")
    camera.fill("[name='/number']", "A-7")
    camera.click("#call button.is-main")
    camera.wait_for("The tool failed")
    camera.take("try-failed")
    _choose(camera, origin, "tool", "arabic")
    camera.click("#call button.is-main")
    camera.wait_for("the server asks")
    camera.take("try-asked-arabic")
    _choose(camera, origin, "tool", "order")
    camera.fill("[name='/number']", "A-7")
    camera.click("#call button.is-main")
    camera.wait_for("Refund A-7 how?")
    camera.take("try-asked")


def _calls(camera: Camera, origin: str) -> None:
    camera.click(".question input[type=radio]")
    camera.click(".question button.is-main")
    camera.wait_for("lines of A-7")
    camera.take("try-done")
    camera.browser.find_element("link text", "its story").click()
    camera.wait_for("Leg 2")
    camera.wait_for("completed")
    camera.take("dev-story")
    for name, values in (
        ("report", {"title": "the year"}),
        ("nap", {"hours": "7"}),
        ("approve", {"title": "the fair"}),
        ("doomed", {}),
    ):
        _choose(camera, origin, "tool", name)
        for field, value in values.items():
            camera.fill(f"[name='/{field}']", value)
        camera.click("#call button.is-main")
        camera.find("#run-state")
    camera.open(f"{origin}/tasks", "Publish the year?")
    camera.wait_for("failed")
    camera.take("dev-tasks")
    camera.open(f"{origin}/tasks?q=report")
    camera.click("#rows a")
    camera.wait_for("What you can do")
    camera.take("dev-task-asks")
    camera.open(f"{origin}/tasks?q=approve")
    camera.click("#rows a")
    camera.wait_for("What you can do")
    camera.take("dev-task-asks-person")
    camera.open(f"{origin}/tasks?q=doomed")
    camera.click("#rows a")
    camera.wait_for("Leg 1")
    camera.take("dev-task-failed")
    camera.open(f"{origin}/tasks?q=nap")
    camera.click("#rows a")
    camera.wait_for("Wake now")
    camera.take("dev-task-sleeps")
    camera.open(f"{origin}/calls", "order")
    camera.take("dev-calls")
    camera.open(f"{origin}/calls?q=fail")
    camera.click("#rows a")
    camera.wait_for("Leg 1")
    camera.take("dev-story-failed")
    camera.open(f"{origin}/calls?q=nothing+like+this", "Nothing fits")
    camera.take("dev-calls-nothing-fits")

"""The dashboard in a real browser: live, at any moment of the past, by the mouse, by the keyboard, for viewers."""

import json
import re
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from benchmarks.served import Served, command, environment, manifest, start
from tests.e2e.dashboard.conftest import Open
from tests.waiting import wait_until

MARKUP = "<img src=x onerror=alert(1)>"
LONG = "sleep 600"


def submit(served: Served, name: str, script: str = LONG, **sizes: int) -> None:
    served.ask("POST", "/api/v1/jobs", manifest(name, script, **sizes))


def is_in_state(served: Served, name: str, state: str) -> bool:
    jobs: list[Mapping[str, Any]] = served.get("/api/v1/state")["jobs"]
    return any(job["job_id"] == name and job["state"] == state for job in jobs)


def run(served: Served, name: str, **sizes: int) -> None:
    """Submit a job, and return once it has workers."""
    submit(served, name, LONG, **sizes)
    wait_until(lambda: is_in_state(served, name, "Running"), lambda: f"{name} does not run")


def token_of(served: Served, user: str, role: str) -> str:
    arguments = command("token", "create", user, "--role", role)
    made = subprocess.run(
        arguments, env=environment(served.home), capture_output=True, text=True, timeout=60, check=True
    )
    return made.stdout.strip()


def row(page: Page, name: str) -> Any:
    return page.get_by_role("tabpanel").get_by_role("button", name=name)


def panel(page: Page, name: str) -> Any:
    return page.get_by_role("complementary", name=f"Job {name}")


def mark(page: Page, text: str | re.Pattern[str]) -> None:
    """Wait for what the top line says of the connection."""
    expect(page.locator("header .mark")).to_contain_text(text)


def test_page_when_the_cluster_is_empty_shows_commands_and_then_each_job_as_it_comes(
    served: Served, look: Open
) -> None:
    page = look(token=served.token)
    expect(page.get_by_role("region", name="No jobs").locator("code")).to_have_count(3)
    submit(served, "first")
    expect(row(page, "first")).to_contain_text("1 GPU")
    expect(page.get_by_role("region", name="Summary")).to_contain_text("of 4 GPUs in use")
    expect(page.get_by_role("region", name="No jobs")).to_have_count(0)
    served.ask("DELETE", "/api/v1/jobs/first")
    expect(row(page, "first")).to_have_count(0)
    expect(page.get_by_role("region", name="No jobs")).to_be_visible()


def test_page_when_a_job_waits_says_why_and_where_in_line(served: Served, look: Open) -> None:
    run(served, "holder", least=4, most=4)
    submit(served, "waiter", least=4, most=4)
    page = look(token=served.token)
    page.get_by_role("tab", name="Waiting").click()
    expect(row(page, "waiter")).to_contain_text("waits: needs 4 GPUs, none is free")
    row(page, "waiter").click()
    expect(panel(page, "waiter")).to_contain_text("Decisions", ignore_case=True)
    page.get_by_role("button", name="Close").click()
    page.get_by_role("tab", name="Running").click()
    row(page, "holder").click()
    panel(page, "holder").locator("dd button").click()
    expect(page.get_by_role("complementary", name="Node")).to_contain_text("4 of 4 GPUs in use")


def test_token_when_it_is_wrong_is_refused_in_a_sentence_and_when_right_forgotten_on_signing_out(
    served: Served, look: Open
) -> None:
    page = look()
    page.get_by_label("Token").fill("no such token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    page.get_by_label("Token").fill(served.token)
    page.get_by_role("button", name="Sign in").click()
    mark(page, "Live")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])") == '[{},{},""]'


def test_token_when_it_is_revoked_while_somebody_looks_asks_for_another(served: Served, look: Open) -> None:
    page = look(token=token_of(served, "grace", "viewer"))
    subprocess.run(command("token", "revoke", "grace"), env=environment(served.home), timeout=60, check=True)
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_login_when_the_command_prints_one_signs_in_once_and_is_not_left_in_the_address(
    served: Served, look: Open
) -> None:
    asked = command("dashboard", "--no-open")
    said = subprocess.run(asked, env=environment(served.home), capture_output=True, text=True, timeout=60, check=True)
    link = said.stdout.strip().rpartition("/")[2]
    page = look(link)
    mark(page, "Live")
    assert page.evaluate("location.hash") == ""
    page.reload()
    mark(page, "Live")
    again = look(link)
    expect(again.get_by_role("alert")).to_contain_text("used before")
    expect(again.get_by_label("Token")).to_be_visible()


def test_viewer_when_it_looks_at_a_job_sees_no_buttons_that_change_it(served: Served, look: Open) -> None:
    run(served, "shown")
    for role, count in ("viewer", 0), ("user", 0), ("admin", 4):
        page = look("#job=shown", token=token_of(served, f"{role}-1", role))
        expect(panel(page, "shown")).to_contain_text("Running")
        expect(panel(page, "shown").get_by_role("group", name="Change the job").get_by_role("button")).to_have_count(
            count
        )


def test_question_when_answered_no_changes_nothing_and_when_confirmed_halts_the_job(served: Served, look: Open) -> None:
    run(served, "stopped")
    page = look("#job=stopped", token=served.token)
    shown = panel(page, "stopped")
    shown.get_by_role("button", name="Halt").click()
    page.get_by_role("dialog").get_by_role("button", name="No").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert is_in_state(served, "stopped", "Running")
    shown.get_by_role("button", name="Halt").click()
    page.get_by_role("dialog").get_by_role("button", name="Halt").click()
    expect(shown.locator(".state")).to_have_text("Halted")
    shown.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(shown.locator(".state")).to_have_text("Running")


def test_question_when_the_server_refuses_the_answer_says_why_and_stays(served: Served, look: Open) -> None:
    run(served, "kept", least=1, most=2)
    page = look("#job=kept", token=served.token)
    panel(page, "kept").get_by_role("button", name="Scale").click()
    page.get_by_role("dialog").get_by_label("Replicas").fill("3-2")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("replicas")
    page.get_by_role("dialog").get_by_label("Replicas").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    expect(panel(page, "kept")).to_contain_text("2 of 2")


def test_slider_when_moved_shows_that_moment_and_its_link_shows_it_again(served: Served, look: Open) -> None:
    run(served, "gone")
    started = served.get("/api/v1/events?type=worker.started&limit=1")["items"][0]["recorded_at"]
    served.ask("DELETE", "/api/v1/jobs/gone")
    run(served, "later")
    page = look(f"#at={just_after(started)}", token=served.token)
    mark(page, "Past")
    expect(row(page, "gone")).to_be_visible()
    expect(row(page, "later")).to_have_count(0)
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("region", name="No jobs")).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    expect(row(page, "later")).to_be_visible()
    mark(page, "Past")
    page.keyboard.press("Home")
    expect(page.get_by_role("region", name="No jobs")).to_be_visible()
    moment = page.evaluate("new Date(+document.querySelector('.slider').value).toISOString()")
    expect(page).to_have_url(re.compile(re.escape(moment)))
    again = look(page.evaluate("location.hash"), token=served.token)
    mark(again, "Past")
    expect(again.get_by_role("region", name="No jobs")).to_be_visible()
    again.get_by_role("region", name="Time").get_by_role("button", name="Live").click()
    expect(row(again, "later")).to_be_visible()
    mark(again, "Live")
    expect(again).to_have_url(re.compile("^[^#]*#?$"))


def just_after(recorded_at: str) -> str:
    """Return the millisecond behind an instant: a page knows no finer ones."""
    return (datetime.fromisoformat(recorded_at) + timedelta(milliseconds=1)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def test_play_when_pressed_in_the_past_shows_what_followed_and_ends_live(served: Served, look: Open) -> None:
    # Long enough for some of the ten frames a second.
    submit(served, "once", "sleep 1")
    ended = "/api/v1/events?type=job.completed&limit=1"
    wait_until(lambda: served.get(ended)["items"], lambda: "once does not end")
    run(served, "now")
    page = look(token=served.token)
    expect(row(page, "now")).to_be_visible()
    expect(row(page, "once")).to_have_count(0)
    page.get_by_label("Speed").select_option("1")
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("region", name="No jobs")).to_be_visible()
    # It may be there for less time than there is between two looks.
    page.evaluate(
        "new MutationObserver(() => document.querySelectorAll('.row b').forEach((row) => seen.add(row.textContent)))"
        ".observe(document.body, { subtree: true, childList: true, characterData: true }); window.seen = new Set()"
    )
    page.get_by_role("button", name="Play").click()
    mark(page, "Live")
    expect(row(page, "now")).to_be_visible()
    assert page.evaluate("[...seen].sort()") == ["now", "once"]


def test_steps_when_taken_back_and_forth_lead_from_decision_to_decision_and_to_failures(
    served: Served, look: Open
) -> None:
    run(served, "one")
    submit(served, "broken", "exit 3")
    failed = "/api/v1/events?type=program.failed&limit=1"
    wait_until(lambda: served.get(failed)["items"], lambda: "the program does not fail")
    page = look(token=served.token)
    expect(row(page, "one")).to_be_visible()
    position = page.locator(".moment")
    page.get_by_role("combobox", name="Step to").select_option("failure")
    page.get_by_role("button", name="Previous failure").click()
    mark(page, "Past")
    last = max(each["position"] for each in served.get("/api/v1/events?type=program.failed&limit=100")["items"])
    shown = int(re.sub(r"\D", "", re.findall(r"event ([\d,]+)", position.inner_text())[0]))
    assert shown <= last + 5
    page.get_by_role("combobox", name="Step to").select_option("decision")
    plans = [each["position"] for each in served.get("/api/v1/events?type=plan.adopted&limit=100")["items"]]
    for _ in range(len(plans) + 5):
        page.get_by_role("button", name="Previous decision").click()
        page.wait_for_timeout(150)
        if page.get_by_role("alert").count():
            break
    expect(page.get_by_role("alert")).to_contain_text("no earlier decision")
    expect(position).to_contain_text(re.compile(rf"event {plans[0]}\b"))


def test_text_when_it_has_markup_is_shown_as_text(served: Served, look: Open) -> None:
    run(served, "hostile")
    body = {"epoch": 1, "metrics": {MARKUP: 1.0}}
    served.ask("POST", "/api/v1/jobs/hostile/progress", body)
    served.ask("POST", "/api/v1/jobs/hostile/progress", {**body, "epoch": 2, "report_id": "2"})
    served.ask("POST", "/api/v1/jobs/hostile/halt?reason=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    submit(served, "sad", f"echo '{MARKUP}'; exit 3")
    page = look("#job=hostile", token=served.token)
    expect(panel(page, "hostile").locator(".message")).to_contain_text(MARKUP)
    expect(panel(page, "hostile").locator("figcaption").filter(has_text=MARKUP)).to_have_count(1)
    page.get_by_role("button", name="Close").click()
    page.get_by_role("tab", name="Waiting").click()
    expect(row(page, "hostile")).to_contain_text(MARKUP)
    page.get_by_role("searchbox").fill(MARKUP)
    expect(page.locator("img")).to_have_count(0)


def test_filter_when_typed_leaves_the_jobs_that_match(served: Served, look: Open) -> None:
    run(served, "bert")
    run(served, "resnet")
    page = look(token=served.token)
    page.get_by_role("searchbox").fill("pool:default bert")
    expect(row(page, "bert")).to_be_visible()
    expect(row(page, "resnet")).to_have_count(0)
    page.get_by_role("searchbox").fill("user:nobody-of-this-name")
    expect(page.get_by_role("tabpanel")).to_contain_text("No job that matches the filter runs.")


def test_keyboard_alone_when_nothing_else_is_at_hand_signs_in_finds_a_job_and_comes_back(
    served: Served, look: Open
) -> None:
    run(served, "found")
    page = look()
    page.get_by_label("Token").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.type(served.token)
    page.keyboard.press("Enter")
    expect(row(page, "found")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("found")
    page.keyboard.press("Escape")
    for _ in range(30):
        page.keyboard.press("Tab")
        if "found" in page.evaluate("document.activeElement.closest('.row')?.textContent ?? ''"):
            break
    page.keyboard.press("Enter")
    expect(panel(page, "found").get_by_role("heading", name="found")).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel(page, "found")).to_have_count(0)
    expect(row(page, "found")).to_be_focused()
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#grid-cursor")).to_contain_text("1 of 4 GPUs in use by found")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Node")).to_be_visible()


def test_connection_when_the_server_ends_says_since_when_and_goes_on_once_it_is_back(
    served: Served, look: Open
) -> None:
    run(served, "goes-on")
    page = look(token=served.token)
    mark(page, "Live")
    port = served.url.rpartition(":")[2].strip("/")
    served.kill()
    mark(page, re.compile(r"last seen .* ago, trying again"))
    expect(row(page, "goes-on")).to_be_visible()
    again = start(served.home, "--port", port, "--slots", "4", "--single-user", "--ratelimit", "0", "--halt-on-exit")
    try:
        mark(page, "Live")
        submit(again, "new")
        expect(row(page, "new")).to_be_visible()
    finally:
        again.stop()


@pytest.mark.parametrize("night", [False, True], ids=["day", "night"])
def test_page_when_looked_at_by_axe_keeps_nobody_out(served: Served, look: Open, axe: str, night: bool) -> None:
    run(served, "shown", least=2, most=2)
    submit(served, "waits", least=4, most=4)
    page = look(night=night)
    page.get_by_label("Token").wait_for()
    found = {"login": violations(page, axe)}
    page.get_by_label("Token").fill(served.token)
    page.get_by_role("button", name="Sign in").click()
    expect(row(page, "shown")).to_be_visible()
    found["running"] = violations(page, axe)
    page.get_by_role("tab", name="Waiting").click()
    expect(row(page, "waits")).to_be_visible()
    found["waiting"] = violations(page, axe)
    row(page, "waits").click()
    expect(panel(page, "waits")).to_contain_text("What voda believes", ignore_case=True)
    found["panel"] = violations(page, axe)
    panel(page, "waits").get_by_role("button", name="Scale").click()
    found["question"] = violations(page, axe)
    assert not any(found.values()), found


def violations(page: Page, axe: str) -> list[str]:
    """Return what axe finds that is serious or worse."""
    page.evaluate(axe)
    results = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [each for each in results["violations"] if each["impact"] in {"serious", "critical"}]
    return [f"{each['id']}: {json.dumps([node['html'][:120] for node in each['nodes'][:3]])}" for each in serious]


def test_page_when_as_narrow_as_a_phone_needs_no_scrolling_sideways(served: Served, look: Open) -> None:
    run(served, "shown")
    page = look(token=served.token, width=390, height=844)
    expect(row(page, "shown")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    row(page, "shown").click()
    expect(panel(page, "shown")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_ended_jobs_when_looked_for_say_how_they_ended_and_open(served: Served, look: Open) -> None:
    submit(served, "fine", "exit 0")
    run(served, "stopped")
    served.ask("DELETE", "/api/v1/jobs/stopped")
    page = look(token=served.token)
    page.get_by_role("tab", name="Ended").click()
    expect(row(page, "stopped")).to_contain_text("Canceled")
    expect(row(page, "fine")).to_contain_text("Completed")
    page.get_by_role("searchbox").fill("state:canceled")
    expect(row(page, "fine")).to_have_count(0)
    row(page, "stopped").click()
    expect(panel(page, "stopped")).to_contain_text("Canceled", ignore_case=True)


def test_what_if_when_asked_shows_both_runs_and_how_far_the_simulation_is_off(served: Served, look: Open) -> None:
    for number in range(3):
        submit(served, f"short-{number}", "exit 0")
    page = look(token=served.token)
    page.get_by_role("tab", name="Ended").click()
    for number in range(3):
        expect(row(page, f"short-{number}")).to_contain_text("Completed")
    page.get_by_role("button", name="What if").click()
    asked = page.get_by_role("complementary", name="What if another policy had decided")
    asked.get_by_label("Policy").select_option("afs-l")
    asked.get_by_role("button", name="Simulate").click()
    expect(asked.get_by_role("table")).to_contain_text("3 jobs completed in all three runs")
    expect(asked.get_by_role("columnheader", name="afs-l")).to_be_visible()
    expect(asked).to_contain_text("With 3 jobs, means and percentiles say little.")
    page.keyboard.press("Escape")
    expect(asked).to_have_count(0)


def test_answers_that_fail_are_said_and_forgotten_once_they_come(served: Served, look: Open) -> None:
    def fail(route: Route) -> None:
        problem = {"type": "about:blank", "title": "Unavailable", "status": 503, "detail": "The log cannot be read."}
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(problem))

    run(served, "one")
    page = look(token=served.token)
    page.route("**/progress*", fail)
    row(page, "one").click()
    expect(panel(page, "one").get_by_text("The log cannot be read.")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    page.route("**/api/v1/jobs?*phase=Completed*", fail)
    page.get_by_role("tab", name="Ended").click()
    expect(page.get_by_role("tabpanel").get_by_text("The log cannot be read.")).to_be_visible()
    page.unroute("**/api/v1/jobs?*phase=Completed*")
    submit(served, "two", "true")
    expect(row(page, "two")).to_be_visible()

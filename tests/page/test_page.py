"""The page shows what the emulator has, does and is asked, live and as text."""

import json

import pytest

from cloud import COMPUTE, SECRET, STORAGE, Emulator
from scene import SCENARIO, WEB, Scene

MACHINES = "microsoft.compute/virtualmachines"
DISKS = "microsoft.compute/disks"
ACCOUNTS = "microsoft.storage/storageaccounts"
SHARES = "microsoft.storage/storageaccounts/fileservices/shares"
DELETED_SHARES = "microsoft.storage/storageaccounts/fileservices/deletedshares"


BALANCERS = "microsoft.network/loadbalancers"
GROUPS = "microsoft.network/networksecuritygroups"
ROUTES = "microsoft.network/routetables"
ADDRESSES = "microsoft.network/publicipaddresses"


@pytest.fixture
def cluster(tmp_path):
    """An emulator with what a cluster has in Azure."""
    scenario = tmp_path / "cluster.json"
    scenario.write_text(json.dumps(SCENARIO))
    with Emulator(tmp_path, "--scenario", str(scenario), "--latency", "none", "--no-throttling") as emulator:
        Scene(emulator).whole()
        yield emulator


def opened(windows, emulator, width: int = 1280):
    """The page, as soon as it is live."""
    page = windows(width)
    page.open(emulator.url + "/")
    page.wait("document.querySelector('#live').textContent === 'live'")
    return page


def card(kind: str, name: str) -> str:
    """The expression of the card of a resource."""
    return f"[...document.querySelectorAll('[data-type=\"{kind}\"] .card')].find((card) => card.querySelector('h3').textContent === {json.dumps(name)})"


def row(kind: str, name: str) -> str:
    """The expression of a resource's row."""
    rows = f"[...document.querySelectorAll('[data-type=\"{kind}\"] tbody tr')]"
    return f"{rows}.find((row) => row.querySelector('.name').textContent === {json.dumps(name)})"


def test_what_exists_is_shown_by_type_with_the_luns_of_machines(emulator, page):
    emulator.disk("data", {"team": "storage"}, gib=64)
    emulator.attach("node-0", ("data", 5))
    page.wait(f"{row(DISKS, 'data')}?.innerText.includes('node-0 LUN 5')")
    assert page.run(f"return {row(MACHINES, 'node-0')}.querySelector('.lun').textContent") == "5data"
    shown = page.run(f"return {row(DISKS, 'data')}.innerText")
    for word in ["attached", "64\u00a0GiB", "Premium_LRS", "team storage"]:
        assert word in shown
    assert "no request limits" in page.run("return document.querySelector('#about').textContent")
    titles = page.run("return [...document.querySelectorAll('summary')].map((one) => one.textContent)")
    assert titles[0].startswith("Virtual machines2"), titles
    assert any(title.startswith("Virtual networks1") for title in titles), titles


def test_accounts_are_shown_with_their_shares_and_who_made_them(emulator, page):
    version = "2025-01-01"
    account = f"{STORAGE}/storageAccounts/files1"
    shares = f"{account}/fileServices/default/shares"
    body = {"location": "westeurope", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}, "properties": {}}
    emulator.arm("PUT", account, body, version)
    page.wait(f"{row(ACCOUNTS, 'files1')}?.innerText.includes('no share')")
    metadata = {"createdBy": "file.csi.azure.com"}
    for name, properties in [("pvc-1", {"shareQuota": 5, "metadata": metadata}), ("mine", {"shareQuota": 9})]:
        status, answer, _ = emulator.arm("PUT", f"{shares}/{name}", {"properties": properties}, version)
        assert status == 201, answer
    page.wait(f"{row(ACCOUNTS, 'files1')}?.querySelectorAll('.lun').length === 2")
    chips = f"[...{row(ACCOUNTS, 'files1')}.querySelectorAll('.lun')]"
    assert page.run(f"return {chips}.map((chip) => chip.textContent)") == ["9\u00a0GiBmine", "5\u00a0GiBpvc-1"]
    shown = page.run(f"return {row(SHARES, 'pvc-1')}.innerText")
    for word in ["live", "files1", "5\u00a0GiB", "TransactionOptimized", "file.csi.azure.com"]:
        assert word in shown
    status, answer, _ = emulator.arm("DELETE", f"{shares}/pvc-1", None, version)
    assert status == 200, answer
    page.wait(f"{row(DELETED_SHARES, 'pvc-1')}?.innerText.includes('deleted') && !({row(SHARES, 'pvc-1')})")
    assert page.run(f"return {chips}.at(-1).textContent") == "5\u00a0GiBpvc-1deleted"


def test_a_load_balancer_is_a_card_with_address_service_rules_probes_and_machines(cluster, windows):
    page = opened(windows, cluster)
    shown = page.run(f"return {card(BALANCERS, 'kubernetes')}.innerText")
    for word in ["public", "shop/web", "TCP 80 → 30080", "TCP 443 → 30443", "HTTP 31845 /healthz, every 5", "affinity by client address", "3 members"]:
        assert word in shown.replace("\u00a0", " "), (word, shown)
    address = page.run(f"return {card(BALANCERS, 'kubernetes')}.querySelector('.address').textContent")
    assert address.startswith("198.18.") or address.startswith("198.19.")
    members = page.run(f"return [...{card(BALANCERS, 'kubernetes')}.querySelectorAll('.pool .lun')].map((chip) => chip.textContent)")
    assert members == ["node-0", "node-1", "node-2"]
    internal = page.run(f"return {card(BALANCERS, 'kubernetes-internal')}.innerText")
    assert "internal" in internal and "TCP 5432" in internal and "lazuli-vnet/nodes" in internal
    ip = page.run(f"return {row(ADDRESSES, 'kubernetes-' + WEB[:12])}.innerText")
    assert address in ip and "shop/web" in ip and "on kubernetes" in ip
    titles = page.run("return [...document.querySelectorAll('summary h2')].map((one) => one.textContent)")
    assert titles[:4] == ["Virtual machines", "Load balancers", "Disks", "Public IP addresses"]


def test_security_rules_and_routes_are_lines_that_say_all(cluster, windows):
    page = opened(windows, cluster)
    address = page.run(f"return {card(BALANCERS, 'kubernetes')}.querySelector('.address').textContent")
    rules = page.run(f"return [...{card(GROUPS, 'nodes-nsg')}.querySelectorAll('tbody tr')].map((one) => [...one.cells].map((cell) => cell.textContent))")
    assert len(rules) == 8
    assert rules[0] == ["500", f"allow in TCP from 203.0.113.0/24, 198.51.100.7 to {address}, port 80, 443", "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77"]
    assert rules[1][1] == f"deny in any protocol from 0.0.0.0/0 to {address}, any port"
    assert rules[4][1] == "deny in any protocol from anywhere to anywhere, any port"
    routes = page.run(f"return [...{row(ROUTES, 'nodes-routes')}.querySelectorAll('.line')].map((line) => line.textContent)")
    assert [route.split(" 10.240")[0] for route in routes] == [f"10.244.{n}.0/24 → node-{n}" for n in range(3)]


def test_machines_show_their_slots_and_disks_their_claims(cluster, windows):
    page = opened(windows, cluster)
    assert page.run(f"return {row(MACHINES, 'node-0')}.querySelector('.slots').textContent") == "2/8"
    chips = page.run(f"return [...{row(MACHINES, 'node-0')}.querySelectorAll('.lun')].map((chip) => chip.textContent)")
    assert chips == ["0shop/data-db-0", "1default/uploads"]
    shown = page.run(f"return {row(DISKS, 'pvc-data-db-1')}.innerText")
    assert "shop/data-db-1" in shown and "node-1 LUN 0" in shown
    # What the claim tells is no tag any more.
    assert page.run(f"return {row(DISKS, 'pvc-data-db-1')}.querySelector('.tag')") is None


def test_a_click_shows_the_json_of_a_resource_and_of_a_call(cluster, windows):
    page = opened(windows, cluster)
    page.run(f"{card(BALANCERS, 'kubernetes')}.querySelector('h3 button').click()")
    shown = json.loads(page.wait("document.querySelector('#json').open && document.querySelector('#json pre').textContent"))
    assert shown["properties"]["loadBalancingRules"][0]["properties"]["frontendPort"] == 80
    page.run("document.querySelector('#json .close').click()")
    page.run("[...document.querySelectorAll('#calls .opens')].find((one) => one.textContent.startsWith('PUT')).click()")
    call = json.loads(page.wait("document.querySelector('#json').open && document.querySelector('#json pre').textContent"))
    assert call["method"] == "PUT" and call["userAgent"] == "lazuli/0.1.0"
    assert "lazuli/0.1.0" in page.run("return document.querySelector('#calls tbody tr').innerText")


def order(page, kind: str, **fields):
    """Orders an incident as a person does, and gives what the page says of it beforehand."""
    page.run(f"document.querySelector('[data-order={kind}]').click()")
    for name, value in fields.items():
        page.run(
            "const field = document.querySelector(`#order [name=${arguments[0]}]`);"
            "field.value = [...(field.options ?? [])].find((option) => option.textContent === arguments[1])?.value ?? arguments[1];"
            "field.dispatchEvent(new Event('input', { bubbles: true }))",
            name, value,
        )
    words = page.run("return document.querySelector('#order output').textContent").replace("\u00a0", " ")
    page.run("document.querySelector('#order [type=submit]').click()")
    page.wait("!document.querySelector('#order').open")
    return words


def test_incidents_are_ordered_at_a_click_told_in_words_and_taken_back(emulator, page):
    words = order(page, "throttle", requests="writes of disks", times="the next 3", seconds="7")
    assert words.startswith("The next 3 writes of disks get 429 TooManyRequests and are told to wait 7 s.")
    in_force = "document.querySelector('#incidents .list').innerText"
    page.wait(f"{in_force}.includes('The next 3 writes of disks')")
    status, answer, headers = emulator.arm("DELETE", f"{COMPUTE}/disks/none")
    assert (status, headers["Retry-After"]) == (429, "7"), answer
    page.wait(f"{in_force}.includes('The next 2 writes of disks') && {in_force}.includes('Struck 1 request so far.')")
    page.run("document.querySelector('#incidents .list button').click()")
    page.wait(f"{in_force} === ''")
    assert emulator.control("incidents") == []

    assert order(page, "fail", requests="reads", times="the next one", failure="503 ServiceUnavailable").startswith("The next read gets 503 ServiceUnavailable.")
    assert emulator.arm("GET", f"{COMPUTE}/disks/none")[0] == 503
    words = order(page, "fail", requests="writes", times="all, until taken back", failure="lost answer")
    assert words.startswith("All writes get no answer, though Azure does what was asked.")
    assert emulator.control("incidents")[-1]["incident"] == {
        "match": {"method": "PUT|PATCH|POST|DELETE"}, "then": {"loseAnswer": "after"}, "times": 0,
    }
    assert order(page, "delay", requests="sign-ins", seconds="2").startswith("The next 3 sign-ins wait 2 s.")
    assert emulator.control("incidents")[-1]["incident"]["then"] == {"delayMs": 2000}


def test_a_machine_is_killed_at_a_click_and_started_again(emulator, page):
    page.wait(row(MACHINES, "node-1"))
    words = order(page, "machine", machine="node-1, running")
    assert words.startswith("node-1 stops at once.") and "disks stay attached" in words
    page.wait(f"{row(MACHINES, 'node-1')}.innerText.includes('stopped')")
    assert order(page, "machine", machine="node-1, stopped").startswith("node-1 starts at once.")
    page.wait(f"{row(MACHINES, 'node-1')}.innerText.includes('running')")


CUT = """
    return [...document.querySelectorAll('body *')]
        .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible')
        .map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 80)}`);
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_of_a_cluster_is_cut_in_the_window(cluster, windows, width):
    page = opened(windows, cluster, width)
    page.wait(f"{card(GROUPS, 'nodes-nsg')} && {row(DISKS, 'pvc-cache')}")
    assert page.run(CUT) == []
    assert page.run("return document.documentElement.scrollWidth") <= width
    if width == 400:
        # What is empty takes a line, not a screen.
        assert page.run("return document.querySelector('#operations').offsetHeight") < 100


def test_an_empty_log_takes_little_room(tmp_path, windows):
    with Emulator(tmp_path) as emulator:
        emulator.send("DELETE", "/_emulator/calls")
        page = opened(windows, emulator, 400)
        page.wait("document.querySelector('#calls .table').innerText === 'None yet.'")
        assert page.run("return document.querySelector('#calls').offsetHeight") < 120


def test_each_control_has_a_name_and_dialogs_close_by_the_keyboard(cluster, windows):
    page = opened(windows, cluster)
    unnamed = page.run(
        "return [...document.querySelectorAll('button, input, select, dialog, section, [role=region]')].filter((one) =>"
        " !(one.textContent.trim() || one.ariaLabel || one.getAttribute('aria-labelledby'))).map((one) => one.outerHTML)"
    )
    assert unnamed == []
    # Focus stays on the button of a resource while the page is written anew.
    page.run(f"{row(MACHINES, 'node-0')}.querySelector('button').focus()")
    cluster.disk("another")
    page.wait(row(DISKS, "another"))
    assert page.run("return document.activeElement.textContent") == "node-0"


def test_a_created_disk_appears_and_a_deleted_one_goes_without_a_reload(emulator, page):
    page.run("window.sameDocument = true")
    emulator.disk("appears")
    page.wait(row(DISKS, "appears"))
    status, answer, _ = emulator.arm("DELETE", f"{COMPUTE}/disks/appears")
    assert status == 202, answer
    page.wait(f"!({row(DISKS, 'appears')})")
    assert page.run("return window.sameDocument") is True


def test_an_operation_is_shown_with_its_time_left_until_it_ends(tmp_path, windows):
    with Emulator(tmp_path, "--latency", "typical") as emulator:
        page = windows()
        page.open(emulator.url + "/")
        emulator.disk("slow")
        operations = "document.querySelector('#operations .table').innerText"
        shown = page.wait(f"/disk create[^]*slow[^]*[0-9.]+ s left/.test({operations}) && {operations}")
        page.wait(f"{operations} !== {json.dumps(shown)} && {operations}.includes('slow')")
        page.wait(f"{operations} === 'None.'")


def test_the_newest_calls_are_shown_with_status_code_and_latency(emulator, page):
    emulator.disk("asked")
    emulator.arm("GET", f"{COMPUTE}/disks/absent")
    newest = "document.querySelector('#calls tbody tr')"
    page.wait(f"{newest}?.innerText.includes('disks/absent')")
    first = page.run(f"return {newest}.innerText")
    for word in ["GET", "disks.get", "404", "ResourceNotFound"]:
        assert word in first
    second = page.run("return document.querySelectorAll('#calls tbody tr')[1].innerText")
    for word in ["PUT", "lazuli disks/asked", "disks.createOrUpdate", "202", "0.0 s"]:
        assert word in second


def test_what_a_client_sends_is_never_markup(emulator, page):
    markup = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><b id=owned>"
    emulator.disk("marked", {"note": markup})
    emulator.send("GET", "/subscriptions/%3Cb%20id=owned%3E", headers={"Authorization": "Bearer x"})
    page.wait(row(DISKS, "marked"))
    assert markup in page.run(f"return {row(DISKS, 'marked')}.querySelector('.tag').textContent")
    page.wait("document.querySelector('#calls').textContent.includes('404') || document.querySelector('#calls').textContent.includes('401')")
    assert page.run("return document.title") == "Lazuli emulator"
    assert page.run("return document.querySelectorAll('#owned, main script, main img').length") == 0


def test_no_secret_is_on_the_page_or_in_what_it_asks(emulator, page):
    emulator.disk("shared")
    emulator.arm("POST", f"{COMPUTE}/disks/shared/beginGetAccess", {"access": "Read", "durationInSeconds": 600})
    machine = {
        "location": "westeurope",
        "properties": {"osProfile": {"adminUsername": "x", "adminPassword": "Hidden-Password-1", "customData": "SGlkZGVu"}},
    }
    emulator.arm("PUT", f"{COMPUTE}/virtualMachines/refused", machine, "2025-04-01")
    page.wait("document.querySelector('#calls').innerText.includes('virtualMachines/refused')")
    shown = page.run("return document.documentElement.outerHTML")
    answers = [page.fetch(f"/_emulator/{path}")[1] for path in ["overview", "state", "calls", "scenario"]]
    for secret in [SECRET, emulator.token, "Hidden-Password-1", "SGlkZGVu", "sig="]:
        assert secret not in shown
        for answer in answers:
            assert secret not in answer
    assert "<redacted>" in answers[2]


def test_the_filter_leaves_what_fits(emulator, page):
    for name in ["alpha", "beta"]:
        emulator.disk(name, {"stage": f"{name}-stage"})
    page.wait(f"{row(DISKS, 'alpha')} && {row(DISKS, 'beta')}")
    page.run(
        "const filter = document.querySelector('#filter'); filter.value = 'BETA-stage';"
        "filter.dispatchEvent(new Event('input'))"
    )
    names = page.run("return [...document.querySelectorAll('#resources td.name')].map((cell) => cell.textContent)")
    assert names == ["beta"]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("disks", [0, 3, 300])
def test_the_page_fits_its_window(tmp_path, windows, width, disks):
    scenario = tmp_path / "scenario.json"
    machines = [] if disks == 0 else [{"name": "node-{}", "count": 2}]
    made = [
        {"name": f"pvc-{n:08x}-0000-4000-8000-{n:012x}", "sizeGib": 8, "sku": "Premium_LRS", "tags": {"number": str(n)}}
        for n in range(disks)
    ]
    for n in range(min(disks, 3)):
        made[n]["attachTo"] = {"vm": "node-0", "lun": n}
    networks = [] if disks == 0 else [{"name": "net", "prefixes": ["10.0.0.0/8"], "subnets": [{"name": "nodes", "prefix": "10.1.0.0/16"}]}]
    scenario.write_text(json.dumps({"virtualMachines": machines, "disks": made, "virtualNetworks": networks}))
    with Emulator(tmp_path, "--scenario", str(scenario)) as emulator:
        page = windows(width)
        page.open(emulator.url + "/")
        page.wait("document.querySelector('#live').textContent === 'live'")
        assert page.run("return innerWidth") == width
        assert page.run("return document.documentElement.scrollWidth") <= width
        # The group; with disks also a network, and two machines, each with an OS disk and an interface.
        resources = page.run("return document.querySelector('#sums dd').textContent")
        assert resources == str(1 if disks == 0 else disks + 8)
        if disks == 300:
            more = "[...document.querySelectorAll('.more')].find((button) => button.textContent.includes('302'))"
            page.run(f"{more}.click()")
            assert page.run(f"return document.querySelectorAll('[data-type=\"{DISKS}\"] tbody tr').length") == 302


def test_the_page_asks_its_own_server_only_and_logs_no_error(emulator, page):
    emulator.disk("seen")
    page.wait(row(DISKS, "seen"))
    asked = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert asked and all(url.startswith((emulator.url + "/", "data:")) for url in asked), asked
    assert [entry for entry in page.logged() if entry["level"] in ("SEVERE", "WARNING")] == []


def test_the_page_says_that_the_emulator_is_gone_and_shows_the_next_one(tmp_path, windows):
    live = "document.querySelector('#live').textContent"
    with Emulator(tmp_path, "--latency", "none") as first:
        page = windows()
        page.open(first.url + "/")
        first.disk("of-the-first")
        page.wait(row(DISKS, "of-the-first"))
        address = f"127.0.0.1:{first.port}"
    page.wait(f"{live} === 'no answer; trying again'")
    with Emulator(tmp_path, "--latency", "none", listen=address) as second:
        second.disk("of-the-second")
        page.wait(f"{live} === 'live' && {row(DISKS, 'of-the-second')}")
        assert page.run(f"return {row(DISKS, 'of-the-first')} === undefined")

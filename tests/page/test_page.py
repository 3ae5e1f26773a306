"""The page shows what the emulator has, does and is asked, live and as text."""

import json

import pytest

from cloud import COMPUTE, SECRET, STORAGE, Emulator

MACHINES = "microsoft.compute/virtualmachines"
DISKS = "microsoft.compute/disks"
ACCOUNTS = "microsoft.storage/storageaccounts"
SHARES = "microsoft.storage/storageaccounts/fileservices/shares"
DELETED_SHARES = "microsoft.storage/storageaccounts/fileservices/deletedshares"


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

// Shows /_emulator/overview, once a second. Everything is written as text nodes: what a client sent is never markup.

import { listenForOrders, showIncidents } from "/_emulator/page-incidents.js";
import * as network from "/_emulator/page-network.js";
import {
  broken, cell, chip, clock, find, lastOf, make, mono, opens, opensResource, quiet, seconds, shortPath, spaced, stateOf, table, typeName,
} from "/_emulator/page-words.js";

const EVERY_MS = 1000;
const CALLS_SHOWN = 200;
const ROWS_SHOWN = 200;
const MACHINES = "microsoft.compute/virtualmachines";
const DISKS = "microsoft.compute/disks";
const INSTANCES = "microsoft.compute/virtualmachinescalesets/virtualmachines";
const ACCOUNTS = "microsoft.storage/storageaccounts";
const SHARES = "microsoft.storage/storageaccounts/fileservices/shares";
const DELETED_SHARES = "microsoft.storage/storageaccounts/fileservices/deletedshares";
const { ADDRESSES, BALANCERS, GROUPS, INTERFACES, NETWORKS, ROUTES } = network;
/** The types that a person looks for first. */
const FIRST = [MACHINES, INSTANCES, BALANCERS, DISKS, ADDRESSES, GROUPS, ROUTES, ACCOUNTS, SHARES, DELETED_SHARES, NETWORKS, INTERFACES];
/** Tags that are told in another column. */
const TOLD = /^(k8s-azure-created-by|kubernetes\.io-created-for-|k8s-azure-service$|k8s-azure-cluster-name$)/i;

const page = {
  run: null,
  revision: null,
  types: [],
  operations: [],
  running: 0,
  calls: [],
  at: 0,
  now: 0,
  fetched: 0,
  scale: 1,
  known: null,
  fresh: new Set(),
  whole: new Set(),
  closed: new Set(),
  filter: [],
  claims: new Map(),
};

// ---- the filter ----

const matches = (...texts) => {
  const text = texts.flat().join(" ").toLowerCase();
  return page.filter.every((word) => text.includes(word));
};

// ---- what exists ----

const tagsOf = (row) => Object.entries(row.tags ?? {});
const ownTagsOf = (row) => tagsOf(row).filter(([name]) => !TOLD.test(name));

function tagCell(row) {
  return cell("tags minor", ownTagsOf(row).map(([name, value]) => chip("tag", `${name} = ${value}`, null, make("span", {}, make("i", {}, `${name} `), value))));
}

const nameCell = (row) => cell("name", opensResource(row));

/** A state, and the provisioning state with it where that says more than that all is well. */
function statesCell(word, row) {
  const settled = !row.busy && /^(succeeded|)$/i.test(row.state);
  if (settled || !row.state) return cell("short", stateOf(word, row.busy));
  return cell("short", stateOf(word), make("br"), stateOf(row.state, row.busy));
}

const zoned = (text, row) => [text, row.zone ? `zone ${row.zone}` : ""].filter(Boolean).join(", ");

/** The claim of a disk by the disk's name. */
const claims = () => {
  const disks = page.types.find((type) => type.name.toLowerCase() === DISKS)?.rows ?? [];
  return new Map(disks.filter((row) => row.disk.claim).map((row) => [row.name.toLowerCase(), row.disk.claim]));
};

function lunChip({ lun, disk, state }) {
  const kind = state === "attached" ? "lun" : state === "detach failed" ? "lun bad" : "lun run";
  const claim = page.claims.get(disk.toLowerCase());
  const told = `LUN ${lun}: ${disk}, ${state}${claim ? `, claim ${claim}` : ""}`;
  return chip(kind, told, String(lun), claim ?? disk, state === "attached" ? null : state);
}

function machineRow(row) {
  const { power, size, slots, luns } = row.machine;
  const full = slots !== undefined && luns.length >= slots;
  const used = make("span", { class: full ? "slots full" : "slots", title: "data disks, of those that its size can have" }, slots === undefined ? `${luns.length}` : `${luns.length}/${slots}`);
  return [
    nameCell(row),
    statesCell(power, row),
    cell("luns", used, luns.map(lunChip)),
    cell("short minor", zoned(size, row)),
  ];
}

const isOfSystem = ({ disk }) => disk.machines.length > 0 && disk.machines.every(([, lun]) => lun === null);

function diskRow(row) {
  const { gib, diskState, machines, claim, volume } = row.disk;
  const holders = machines.map(([machine, lun]) => make("div", {}, lun === null ? `${machine}, OS disk` : `${machine} LUN ${lun}`));
  return [
    nameCell(row),
    statesCell(diskState, row),
    cell("short", holders.length ? holders : quiet("–")),
    cell("short", claim ? make("span", { title: volume ? `PersistentVolume ${volume}` : "" }, claim) : quiet("–")),
    cell("", `${gib}\u00a0GiB `, make("span", { class: "quiet minor" }, zoned(row.sku, row))),
  ];
}

function shareChip({ name, gib, madeBy, state }) {
  const told = [`${gib} GiB`, state, madeBy ? `made by ${madeBy}` : ""].filter(Boolean).join(", ");
  return chip(state === "live" ? "lun" : "lun run", `share ${name}: ${told}`, `${gib}\u00a0GiB`, name, state === "live" ? null : state);
}

function accountRow(row) {
  const { kind, total, shares } = row.account;
  const more = total > shares.length ? quiet(`and ${total - shares.length} more`) : null;
  return [
    nameCell(row),
    cell("short", stateOf(row.state, row.busy)),
    cell("luns", total ? shares.map(shareChip) : quiet("no share"), more),
    cell("minor", [row.sku ?? "", kind].filter(Boolean).join(", ")),
  ];
}

function shareRow(row) {
  const { name, account, gib, tier, madeBy, state } = row.share;
  return [
    cell("name", opensResource(row, name)),
    cell("short", stateOf(state)),
    cell("", mono(account)),
    cell("", `${gib}\u00a0GiB `, make("span", { class: "quiet minor" }, tier)),
    cell("minor", madeBy ? mono(madeBy) : quiet("–")),
  ];
}

function anyRow(row) {
  const facts = (row.facts ?? []).map(([name, value]) => make("span", { class: "fact" }, make("i", {}, `${spaced(name)} `), value));
  return [
    nameCell(row),
    cell("short", stateOf(row.state, row.busy)),
    cell("facts", facts.length ? facts : quiet("–")),
    cell("minor", zoned([row.location, row.sku ?? ""].filter(Boolean).join(", "), row)),
  ];
}

const OF_SHARES = { columns: [["Name"], ["State"], ["Account"], ["Quota"], ["Made by", "minor"]], row: shareRow, word: (row) => row.share.state };
const LAYOUTS = {
  ...network.LAYOUTS,
  [MACHINES]: { columns: [["Name"], ["State"], ["Data disks by LUN"], ["Size", "minor"]], row: machineRow, word: (row) => row.machine.power },
  [DISKS]: { columns: [["Name"], ["State"], ["Attached to"], ["Claim"], ["Size"]], row: diskRow, word: (row) => row.disk.diskState },
  [ACCOUNTS]: { columns: [["Name"], ["State"], ["Shares"], ["SKU", "minor"]], row: accountRow },
  [SHARES]: OF_SHARES,
  [DELETED_SHARES]: OF_SHARES,
};
LAYOUTS[INSTANCES] = LAYOUTS[MACHINES];
const ANY = { columns: [["Name"], ["State"], ["Properties"], ["Where", "minor"]], row: anyRow };

/** How many rows there are of each state: `2 attached, 7 unattached`. */
function tally(rows, word = () => "") {
  const found = new Map();
  for (const row of rows) if (word(row)) found.set(word(row), (found.get(word(row)) ?? 0) + 1);
  return [...found].sort().map(([state, count]) => `${count} ${spaced(state)}`).join(", ");
}

/** All texts and numbers in a value. */
const leaves = (value) => (value !== null && typeof value === "object" ? Object.values(value).flatMap(leaves) : [String(value)]);

/** All that the filter looks at. */
const textsOf = (row) => [...leaves(row), ...tagsOf(row).flat(), ...(row.machine?.luns ?? []).map((lun) => page.claims.get(lun.disk.toLowerCase()) ?? "")];

/** The rows of a type as a table. One group is named once; several have a column. Tags have one where there are any. */
function tableOf({ columns, row }, all, shown) {
  const grouped = new Set(all.map((one) => one.group ?? "")).size > 1;
  const tagged = all.some((one) => ownTagsOf(one).length);
  const rows = shown.map((one) => make("tr", page.fresh.has(one.id) ? { class: "new", "data-id": one.id } : { "data-id": one.id },
    row(one), grouped ? cell("minor", one.group ?? "") : null, tagged ? tagCell(one) : null));
  const heads = [...columns, ...(grouped ? [["Group", "minor"]] : []), ...(tagged ? [["Tags", "tags minor"]] : [])];
  return make("div", { class: "table" }, table(heads, rows));
}

function sectionOf(type) {
  const key = type.name.toLowerCase();
  const layout = LAYOUTS[key] ?? ANY;
  const fitting = type.rows.filter((one) => matches(type.name, textsOf(one)));
  // Disks of operating systems are of the least interest.
  if (key === DISKS) fitting.sort((one, other) => isOfSystem(one) - isOfSystem(other));
  const shown = page.whole.has(key) ? fitting : fitting.slice(0, ROWS_SHOWN);
  const groups = new Set(type.rows.map((one) => one.group ?? ""));
  const count = page.filter.length ? `${fitting.length} of ${type.total}` : `${type.total}`;
  const [group] = groups;
  const notes = [tally(fitting, layout.word), groups.size === 1 && group ? `in ${group}` : ""].filter(Boolean).join("; ");
  const section = make("details", { "data-type": key }, make("summary", { title: type.name },
    make("h2", {}, typeName(type.name)), make("span", { class: "count" }, count), make("span", { class: "notes" }, notes)));
  section.open = !page.closed.has(key) && (fitting.length > 0 || !page.filter.length);
  section.addEventListener("toggle", () => {
    if (!section.isConnected || page.filter.length) return;
    if (section.open) page.closed.delete(key);
    else page.closed.add(key);
  });
  if (!shown.length) section.append(make("p", { class: "empty" }, "None fits the filter."));
  else if (layout.card) section.append(make("div", { class: "cards" }, shown.map(layout.card)));
  else section.append(tableOf(layout, type.rows, shown));
  if (shown.length < fitting.length) {
    const more = make("button", { class: "more", type: "button" }, `${shown.length} are shown; show all ${fitting.length}`);
    more.addEventListener("click", () => { page.whole.add(key); showResources(); });
    section.append(more);
  } else if (type.rows.length < type.total) {
    section.append(make("p", { class: "empty" }, `Only the first ${type.rows.length} of ${type.total} are shown here; /_emulator/state has all.`));
  }
  return section;
}

/** Replaces what an element shows, and leaves focus and scrolling where they were. */
function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.json : undefined;
  const scrolled = element.scrollTop;
  element.replaceChildren(...children);
  element.scrollTop = scrolled;
  if (focused !== undefined) element.querySelector(`[data-json="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function showResources() {
  const rank = (type) => (FIRST.indexOf(type.name.toLowerCase()) + FIRST.length + 1) % (FIRST.length + 1);
  page.claims = claims();
  const types = [...page.types].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  const sections = types.map(sectionOf);
  if (!sections.length) {
    const nothing = page.run === null ? "Waiting for the emulator." : "No resource exists. What an ARM client creates appears here at once.";
    sections.push(make("section", {}, make("p", { class: "empty" }, nothing)));
  }
  replace(find("#resources"), ...sections);
}

// ---- operations under way ----

const emulatedNow = () => page.at + (performance.now() - page.fetched) * page.scale;

function showOperations() {
  const now = emulatedNow();
  const fitting = page.operations.filter((operation) => matches(operation.kind, operation.resource, operation.id));
  const rows = fitting.map((operation) => {
    const left = operation.dueMs - now;
    const word = left > 0 ? `${seconds(left)} left` : operation.held ? "waits for the hypervisor" : "ends now";
    const all = Math.max(1, operation.dueMs - operation.startedMs);
    const bar = make("progress", { max: String(all), value: String(Math.min(all, Math.max(0, all - left))), "aria-label": "progress" });
    return make("tr", {},
      cell("short", spaced(operation.kind)),
      cell("", mono(lastOf(operation.resource), `${operation.resource}\noperation ${operation.id}`)),
      cell("short number", bar, word));
  });
  find("#operations .count").textContent = page.filter.length ? `${fitting.length} of ${page.running}` : String(page.running);
  replace(find("#operations .table"), rows.length
    ? table([["What"], ["On"], ["Time left", "number"]], rows)
    : make("p", { class: "empty" }, page.running ? "None fits the filter." : "None."));
}

// ---- calls ----

function answerOf(call) {
  if (call.status === 0) return make("span", { class: "state bad" }, "answer lost");
  const kind = call.status >= 400 ? "bad" : call.status === 202 ? "run" : "ok";
  return make("span", { class: `state ${kind}` }, String(call.status));
}

function timeOf(call) {
  const at = clock(page.now - (page.at - call.atMs), true);
  return make("time", { title: at }, at.split(".")[0]);
}

function showCalls() {
  const fitting = page.calls.filter((call) => matches(call.method, call.path, call.operation, String(call.status), call.code ?? "", call.plane, call.caller));
  const rows = fitting.slice(-CALLS_SHOWN).reverse().map((call) => make("tr", { "data-call": String(call.number) },
    cell("short quiet", timeOf(call)),
    cell("call", opens(`calls/${call.number}`, [make("b", {}, call.method), ...broken(shortPath(call.path))], `${call.path}\nshow as JSON`),
      make("span", { class: "operation" }, ...broken(call.operation, "."),
        call.caller ? make("span", { class: "caller", title: "the caller, by its User-Agent" }, call.caller) : null,
        call.code ? make("span", { class: "code" }, call.code) : null,
        call.incident ? make("span", { class: "code" }, "incident") : null)),
    cell("short", answerOf(call),
      call.latencyMs === undefined ? null : make("span", { class: "operation", title: "How long the operation takes that it started" }, seconds(call.latencyMs)))));
  find("#calls .count").textContent = page.filter.length ? `${fitting.length} of the newest ${page.calls.length}` : "";
  replace(find("#calls .table"), rows.length
    ? table([["Time"], ["Call"], ["Answer"]], rows)
    : make("p", { class: "empty" }, page.calls.length ? "None fits the filter." : "None yet."));
}

// ---- sums ----

function sum(name, value, bad = false) {
  return make("div", bad && value > 0 ? { class: "bad" } : {}, make("dt", {}, name), make("dd", {}, value.toLocaleString("en")));
}

function showSums(seen) {
  const { counters, log } = seen;
  const resources = page.types.reduce((all, type) => all + type.total, 0);
  const sums = [
    sum("resources", resources),
    sum("calls", counters.calls),
    sum("reads", counters.reads),
    sum("writes", counters.writes),
    sum("throttled (429)", counters.throttled, true),
    sum("conflicts (409)", counters.conflicts, true),
  ];
  if (seen.violations) sums.push(sum("dropped fields", seen.violations, true));
  find("#sums").replaceChildren(...sums);
  const about = [seen.version, seen.throttling ? "" : "no request limits", seen.hypervisor === "none" ? "" : seen.hypervisor];
  find("#about").textContent = about.filter(Boolean).join(" · ");
  const notes = [];
  if (log.dropped) notes.push(`${log.dropped.toLocaleString("en")} older calls are kept no more`);
  if (log.cut) notes.push(`${log.cut.toLocaleString("en")} calls were cut`);
  find("#log").textContent = notes.length ? `Call log: ${notes.join("; ")}.` : "";
}

function showClock() {
  if (page.run === null) return;
  const now = page.now + (performance.now() - page.fetched) * page.scale;
  find("#clock").textContent = `${clock(now, false)} UTC${page.scale === 1 ? "" : ` · ${page.scale}× faster`}`;
}

function showLive(word, kind) {
  const live = find("#live");
  if (live.textContent === word) return;
  live.textContent = word;
  live.className = `state ${kind}`;
}

// ---- JSON at a click ----

async function showJson(button) {
  const what = button.dataset.json;
  const [, id] = /^resource\?id=(.*)$/.exec(what) ?? [];
  find("#json h2").textContent = id ? decodeURIComponent(id) : `Call ${what.split("/").pop()}`;
  const answer = await fetch(`/_emulator/${what}`, { signal: AbortSignal.timeout(10000) });
  const told = await answer.json();
  find("#json pre").textContent = answer.ok ? JSON.stringify(told, null, 2) : told.error;
  find("#json").showModal();
  find("#json pre").scrollTop = 0;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-json]");
  if (button) showJson(button).catch((error) => showLive(`no JSON: ${error.message}`, "bad"));
});
find("#json .copy").addEventListener("click", async (event) => {
  const copy = event.target;
  try {
    await navigator.clipboard.writeText(find("#json pre").textContent);
    copy.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(find("#json pre"));
    copy.textContent = "Selected";
  }
  setTimeout(() => { copy.textContent = "Copy"; }, 2000);
});

/** The machines that can be killed or started, by name. */
function machines() {
  const rows = page.types.filter((type) => [MACHINES, INSTANCES].includes(type.name.toLowerCase())).flatMap((type) => type.rows);
  return rows.map((row) => ({ id: row.id, power: row.machine.power })).filter(({ power }) => power === "running" || power === "stopped");
}

// ---- asking ----

function forget() {
  Object.assign(page, { revision: null, types: [], calls: [], known: null, fresh: new Set() });
}

function take(seen) {
  if (seen.run !== page.run) {
    const again = page.run !== null && page.revision !== null;
    forget();
    page.run = seen.run;
    // What was left out belongs to the emulator before this one.
    if (again) return false;
  }
  Object.assign(page, {
    at: seen.atMs, now: seen.nowUnixMs, fetched: performance.now(), scale: seen.timeScale,
    operations: seen.operations, running: seen.runningOperations,
  });
  if (seen.types) {
    const ids = new Set(seen.types.flatMap((type) => type.rows.map((row) => row.id)));
    page.fresh = new Set(page.known ? [...ids].filter((id) => !page.known.has(id)) : []);
    page.known = ids;
    page.types = seen.types;
    page.revision = seen.revision;
    showResources();
  }
  const kept = page.calls.filter((call) => call.number >= seen.log.first);
  if (seen.calls.length || kept.length < page.calls.length) {
    page.calls = [...kept, ...seen.calls].slice(-CALLS_SHOWN);
    showCalls();
  }
  showOperations();
  showSums(seen);
  showIncidents(seen.incidents);
  return true;
}

async function ask() {
  const newest = page.calls.length ? page.calls[page.calls.length - 1].number : 0;
  const query = new URLSearchParams({ after: String(newest) });
  if (page.revision !== null) query.set("revision", String(page.revision));
  const answer = await fetch(`/_emulator/overview?${query}`, { signal: AbortSignal.timeout(10000) });
  if (!answer.ok) throw new Error(`the emulator answers ${answer.status}`);
  return answer.json();
}

async function look() {
  try {
    if (!take(await ask())) take(await ask());
    showLive("live", "ok");
  } catch (error) {
    showLive("no answer; trying again", "bad");
    console.warn(error);
  }
}

/** A pause that ends early when the page is shown again. */
function rest() {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", done);
      resolve();
    };
    const timer = setTimeout(done, EVERY_MS);
    document.addEventListener("visibilitychange", done);
  });
}

async function run() {
  showResources();
  showOperations();
  showCalls();
  for (;;) {
    if (!document.hidden) await look();
    await rest();
  }
}

find("#filter").addEventListener("input", (event) => {
  page.filter = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  showResources();
  showOperations();
  showCalls();
});
document.addEventListener("keydown", (event) => {
  const filter = find("#filter");
  if (event.key === "/" && !document.activeElement.matches("input, select") && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    filter.focus();
  }
});
listenForOrders(machines);
setInterval(() => { showClock(); if (page.operations.length) showOperations(); }, 250);
run();

// Shows /_emulator/overview, once a second. Everything is written as text nodes: what a client sent is never markup.
"use strict";

const EVERY_MS = 1000;
const CALLS_SHOWN = 200;
const ROWS_SHOWN = 200;
const MACHINES = "microsoft.compute/virtualmachines";
const DISKS = "microsoft.compute/disks";
const INSTANCES = "microsoft.compute/virtualmachinescalesets/virtualmachines";
const ACCOUNTS = "microsoft.storage/storageaccounts";
const SHARES = "microsoft.storage/storageaccounts/fileservices/shares";
const DELETED_SHARES = "microsoft.storage/storageaccounts/fileservices/deletedshares";
const FIRST = [MACHINES, INSTANCES, DISKS, ACCOUNTS, SHARES, DELETED_SHARES];

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
};

const find = (selector) => document.querySelector(selector);

/** An element; children that are no nodes become text. */
function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") element.className = value;
    else if (name === "title") element.title = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const mono = (text, title) => make("span", title ? { class: "mono", title } : { class: "mono" }, text);
const cell = (kind, ...children) => make("td", kind ? { class: kind } : {}, ...children);

/** A table: columns are [title, class]; rows are lists of cells. */
function table(columns, rows) {
  const head = make("tr", {}, ...columns.map(([title, kind]) => make("th", kind ? { class: kind, scope: "col" } : { scope: "col" }, title)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

// ---- words ----

const spaced = (text) => text.replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase();
const title = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const typeName = (type) => title(spaced(type.split("/").slice(1).join(" / ") || type));
/** The name of a resource; of an instance of a scale set the set's name and its number. */
const lastOf = (id) => {
  const [, set, number] = /\/virtualMachineScaleSets\/([^/]+)\/virtualMachines\/([^/]+)$/i.exec(id) ?? [];
  return set ? `${set}_${number}` : id.split("/").pop();
};

const GOOD = /^(succeeded|running|attached|unattached|reserved|live)$/i;
const BAD = /fail|cancel|preempt|stale/i;
const STILL = /^(stopped|deallocated|)$/i;

/** How a state word is coloured. */
function manner(word, busy) {
  if (BAD.test(word)) return "bad";
  if (busy) return "run";
  if (GOOD.test(word)) return "ok";
  if (STILL.test(word)) return "idle";
  return "run";
}

function stateOf(word, busy = false) {
  if (!word) return make("span", { class: "quiet" }, "–");
  return make("span", { class: `state ${manner(word, busy)}` }, spaced(word));
}

function seconds(ms) {
  if (ms >= 60000) return `${Math.floor(ms / 60000)} min ${Math.floor((ms % 60000) / 1000)} s`;
  return `${(ms / 1000).toFixed(1)} s`;
}

function clock(ms, withMillis) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return "";
  return date.toISOString().slice(11, withMillis ? 23 : 19);
}

/** A path without what all of them have. */
function shortPath(path) {
  return path
    .replace(/^\/subscriptions\/[^/]+\/?/i, "")
    .replace(/^resourcegroups\/([^/]+)\/?/i, "$1 ")
    .replace(/providers\/microsoft\.[^/]+\//i, "") || path;
}

// ---- the filter ----

const matches = (...texts) => {
  const text = texts.flat().join(" ").toLowerCase();
  return page.filter.every((word) => text.includes(word));
};

// ---- what exists ----

const tagsOf = (row) => Object.entries(row.tags ?? {});

function tagCell(row) {
  const tags = tagsOf(row).map(([name, value]) => make("span", { class: "tag" }, make("i", {}, `${name} `), value));
  return cell("tags minor", make("div", { title: tagsOf(row).map(([name, value]) => `${name} = ${value}`).join("\n") }, ...tags));
}

const nameCell = (row) => cell("name", mono(row.name, row.id));

/** A state, and the provisioning state with it where that says more than that all is well. */
function statesCell(word, row) {
  const settled = !row.busy && /^(succeeded|)$/i.test(row.state);
  if (settled || !row.state) return cell("short", stateOf(word, row.busy));
  return cell("short", stateOf(word), make("br"), stateOf(row.state, row.busy));
}

function lunChip({ lun, disk, state }) {
  const kind = state === "attached" ? "" : state === "detach failed" ? " bad" : " run";
  return make("span", { class: `lun${kind}`, title: `LUN ${lun}: ${disk}, ${state}` },
    make("b", {}, String(lun)), disk, state === "attached" ? null : make("em", {}, state));
}

const zoned = (text, row) => [text, row.zone ? `zone ${row.zone}` : ""].filter(Boolean).join(", ");
const none = (text) => make("span", { class: "quiet" }, text);

function machineRow(row) {
  const { power, size, luns } = row.machine;
  return [
    nameCell(row),
    statesCell(power, row),
    cell("luns", ...(luns.length ? luns.map(lunChip) : [none("no data disk")])),
    cell("short minor", zoned(size, row)),
  ];
}

function diskRow(row) {
  const { gib, diskState, machines } = row.disk;
  const holders = machines.map(([machine, lun]) => make("div", { class: "mono" }, lun === null ? machine : `${machine} LUN ${lun}`));
  return [
    nameCell(row),
    statesCell(diskState, row),
    cell("short", ...(holders.length ? holders : [none("–")])),
    cell("short", `${gib}\u00a0GiB `, make("span", { class: "quiet minor" }, zoned(row.sku, row))),
  ];
}

function shareChip({ name, gib, madeBy, state }) {
  const told = [`${gib} GiB`, state, madeBy ? `made by ${madeBy}` : ""].filter(Boolean).join(", ");
  return make("span", { class: state === "live" ? "lun" : "lun run", title: `share ${name}: ${told}` },
    make("b", {}, `${gib}\u00a0GiB`), name, state === "live" ? null : make("em", {}, state));
}

function accountRow(row) {
  const { kind, total, shares } = row.account;
  const more = total > shares.length ? none(`and ${total - shares.length} more`) : null;
  return [
    nameCell(row),
    cell("short", stateOf(row.state, row.busy)),
    cell("luns", ...(total ? shares.map(shareChip) : [none("no share")]), more ?? ""),
    cell("short minor", [row.sku ?? "", kind].filter(Boolean).join(", ")),
  ];
}

function shareRow(row) {
  const { name, account, gib, tier, madeBy, state } = row.share;
  return [
    cell("name", mono(name, row.id)),
    cell("short", stateOf(state)),
    cell("short", mono(account)),
    cell("short", `${gib}\u00a0GiB `, make("span", { class: "quiet minor" }, tier)),
    cell("short", madeBy ? mono(madeBy) : none("–")),
  ];
}

function anyRow(row) {
  const facts = (row.facts ?? []).map(([name, value]) => make("span", { class: "fact" }, make("i", {}, `${name} `), value));
  return [
    nameCell(row),
    cell("short", stateOf(row.state, row.busy)),
    cell("facts", ...facts),
    cell("short minor", zoned([row.location, row.sku ?? ""].filter(Boolean).join(", "), row)),
  ];
}

const LAYOUTS = {
  [MACHINES]: {
    columns: [["Name"], ["State"], ["Data disks by LUN"], ["Size", "minor"]],
    row: machineRow,
    word: (row) => row.machine.power,
  },
  [DISKS]: {
    columns: [["Name"], ["State"], ["Attached to"], ["Size"]],
    row: diskRow,
    word: (row) => row.disk.diskState,
  },
};
LAYOUTS[ACCOUNTS] = {
  columns: [["Name"], ["State"], ["Shares"], ["SKU", "minor"]],
  row: accountRow,
  word: () => "",
};
LAYOUTS[SHARES] = {
  columns: [["Name"], ["State"], ["Account"], ["Quota"], ["Made by"]],
  row: shareRow,
  word: (row) => row.share.state,
};
LAYOUTS[DELETED_SHARES] = LAYOUTS[SHARES];
const ANY = { columns: [["Name"], ["State"], ["Properties"], ["Where", "minor"]], row: anyRow, word: () => "" };

/** How many rows there are of each state: `2 attached, 7 unattached`. */
function tally(rows, word) {
  const found = new Map();
  for (const row of rows) if (word(row)) found.set(word(row), (found.get(word(row)) ?? 0) + 1);
  return [...found].sort().map(([state, count]) => `${count} ${spaced(state)}`).join(", ");
}

/** All that the filter looks at. */
function textsOf(row) {
  return [
    row.id, row.state, row.location, row.sku ?? "",
    row.machine ? [row.machine.power, row.machine.size, ...row.machine.luns.map((lun) => `${lun.disk} ${lun.state}`)] : [],
    row.disk ? [row.disk.diskState, ...row.disk.machines.map(([machine]) => machine)] : [],
    row.account ? [row.account.kind, ...row.account.shares.map((share) => `${share.name} ${share.madeBy}`)] : [],
    row.share ? [row.share.name, row.share.account, row.share.tier, row.share.madeBy, row.share.state] : [],
    (row.facts ?? []).flat(), tagsOf(row).flat(),
  ].flat();
}

function showResources() {
  const rank = (type) => (FIRST.indexOf(type.name.toLowerCase()) + FIRST.length + 1) % (FIRST.length + 1);
  const types = [...page.types].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  const sections = types.map((type) => {
    const key = type.name.toLowerCase();
    const { columns, row, word } = LAYOUTS[key === INSTANCES ? MACHINES : key] ?? ANY;
    const fitting = type.rows.filter((one) => matches(type.name, textsOf(one)));
    const shown = page.whole.has(key) ? fitting : fitting.slice(0, ROWS_SHOWN);
    // One group is named once; several have a column. Tags have one where there are any.
    const groups = new Set(type.rows.map((one) => one.group ?? ""));
    const tagged = type.rows.some((one) => tagsOf(one).length);
    const rows = shown.map((one) => make("tr", page.fresh.has(one.id) ? { class: "new", "data-id": one.id } : { "data-id": one.id },
      ...row(one), groups.size > 1 ? cell("short minor", one.group ?? "") : null, tagged ? tagCell(one) : null));
    const heads = [...columns, ...(groups.size > 1 ? [["Group", "minor"]] : []), ...(tagged ? [["Tags", "tags minor"]] : [])];
    const count = page.filter.length ? `${fitting.length} of ${type.total}` : `${type.total}`;
    const [group] = groups;
    const notes = [tally(fitting, word), groups.size === 1 && group ? `in ${group}` : ""].filter(Boolean).join("; ");
    const summary = make("summary", { title: type.name }, typeName(type.name),
      make("span", { class: "count" }, count), make("span", { class: "notes" }, notes));
    const section = make("details", { "data-type": key }, summary);
    section.open = !page.closed.has(key) && (fitting.length > 0 || !page.filter.length);
    section.addEventListener("toggle", () => {
      if (!section.isConnected || page.filter.length) return;
      if (section.open) page.closed.delete(key);
      else page.closed.add(key);
    });
    section.append(rows.length
      ? make("div", { class: "table" }, table(heads, rows))
      : make("p", { class: "empty" }, "None fits the filter."));
    if (shown.length < fitting.length) {
      const more = make("button", { class: "more", type: "button" }, `${shown.length} are shown; show all ${fitting.length}`);
      more.addEventListener("click", () => { page.whole.add(key); showResources(); });
      section.append(more);
    } else if (type.rows.length < type.total) {
      section.append(make("p", { class: "empty" }, `Only the first ${type.rows.length} of ${type.total} are shown here; /_emulator/state has all.`));
    }
    return section;
  });
  if (!sections.length) {
    const nothing = page.run === null ? "Waiting for the emulator." : "No resource exists. What an ARM client creates appears here at once.";
    sections.push(make("section", {}, make("p", { class: "empty" }, nothing)));
  }
  const resources = find("#resources");
  const scrolled = resources.scrollTop;
  resources.replaceChildren(...sections);
  resources.scrollTop = scrolled;
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
  find("#operations .table").replaceChildren(rows.length
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
  const [second, millis] = clock(page.now - (page.at - call.atMs), true).split(".");
  return make("time", {}, second, make("span", { class: "minor" }, `.${millis}`));
}

function showCalls() {
  const fitting = page.calls.filter((call) => matches(call.method, call.path, call.operation, String(call.status), call.code ?? "", call.plane));
  const rows = fitting.slice(-CALLS_SHOWN).reverse().map((call) => make("tr", { "data-call": String(call.number) },
    cell("short quiet", timeOf(call)),
    cell("call", make("b", { class: "mono" }, call.method), mono(shortPath(call.path), call.path),
      make("span", { class: "operation" }, `${call.operation} `, call.code ? make("span", { class: "code" }, call.code) : null,
        call.incident ? make("span", { class: "code" }, "incident") : null)),
    cell("short", answerOf(call),
      call.latencyMs === undefined ? null : make("span", { class: "operation", title: "How long the operation takes that it started" }, seconds(call.latencyMs)))));
  find("#calls .count").textContent = page.filter.length ? `${fitting.length} of the newest ${page.calls.length}` : "";
  find("#calls .table").replaceChildren(rows.length
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
  if (seen.incidents) sums.push(sum("incidents", seen.incidents));
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
  if (event.key === "/" && document.activeElement !== filter) {
    event.preventDefault();
    filter.focus();
  }
});
setInterval(() => { showClock(); if (page.operations.length) showOperations(); }, 250);
run();

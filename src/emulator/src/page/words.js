// Elements, and the words for what the emulator tells. Everything is written as text nodes: what a client sent is never
// markup.

export const find = (selector) => document.querySelector(selector);

/** An element; children that are no nodes become text. */
export function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") element.className = value;
    else if (name === "title") element.title = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const mono = (text, title) => make("span", title ? { class: "mono", title } : { class: "mono" }, text);
export const quiet = (...children) => make("span", { class: "quiet" }, ...children);
export const cell = (kind, ...children) => make("td", kind ? { class: kind } : {}, ...children);
export const lines = (list) => list.map((line) => make("div", {}, line));

/** What opens the JSON of a resource or a call at a click; `what` is the path below /_emulator/ that has it. */
export const opens = (what, text, label) =>
  make("button", { class: "opens mono", type: "button", "data-json": what, title: label, "aria-haspopup": "dialog" }, text);
export const opensResource = (row, text = row.name) => opens(`resource?id=${encodeURIComponent(row.id)}`, text, `${row.id}\nshow as JSON`);

/** A text that breaks after a mark first, such as a path between its segments. */
export const broken = (text, mark = "/") => text.split(mark).flatMap((part, at) => (at ? [mark, make("wbr"), part] : [part]));

/** A table: columns are [title, class]; rows are elements. On a narrow screen, where a row is a block, each cell has its title. */
export function table(columns, rows) {
  for (const row of rows) [...row.cells].forEach((one, at) => { one.dataset.label = columns[at]?.[0] ?? ""; });
  const head = make("tr", {}, columns.map(([title, kind]) => make("th", kind ? { class: kind, scope: "col" } : { scope: "col" }, title)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, rows));
}

// ---- names of Azure in words ----

const CAPITALS = { ip: "IP", ips: "IPs", dns: "DNS", id: "ID", sku: "SKU", nat: "NAT", nic: "NIC", os: "OS", vm: "VM", gb: "GB", tcp: "TCP", http: "HTTP" };

/** `publicIPAddresses` is "public IP addresses". */
export const spaced = (text) => text
  .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
  .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
  .split(" ")
  .map((word) => CAPITALS[word.toLowerCase()] ?? word.toLowerCase())
  .join(" ");
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const NAMES = {
  "microsoft.compute/virtualmachinescalesets/virtualmachines": "Instances of scale sets",
  "microsoft.compute/virtualmachinescalesets/virtualmachines/networkinterfaces": "Network interfaces of instances",
  "microsoft.storage/storageaccounts/fileservices": "File services",
  "microsoft.storage/storageaccounts/fileservices/shares": "File shares",
  "microsoft.storage/storageaccounts/fileservices/deletedshares": "Deleted file shares",
};
export const typeName = (type) => NAMES[type.toLowerCase()] ?? capital(spaced(type.split("/").slice(1).join(" / ") || type));

/** `3 writes`, `1 write`. */
export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** The name of a resource; of an instance of a scale set the set's name and its number. */
export const lastOf = (id) => {
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

export function stateOf(word, busy = false) {
  if (!word) return quiet("–");
  return make("span", { class: `state ${manner(word, busy)}` }, spaced(word));
}

export function seconds(ms) {
  if (ms >= 60000) return `${Math.floor(ms / 60000)} min ${Math.floor((ms % 60000) / 1000)} s`;
  return `${(ms / 1000).toFixed(1)} s`;
}

export function clock(ms, withMillis) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return "";
  return date.toISOString().slice(11, withMillis ? 23 : 19);
}

/** A path without what all of them have. */
export function shortPath(path) {
  return path
    .replace(/^\/subscriptions\/[^/]+\/?/i, "")
    .replace(/^resourcegroups\/([^/]+)\/?/i, "$1 ")
    .replace(/providers\/microsoft\.[^/]+\//i, "") || path;
}

/** A chip: a name or number, a text, and what is unusual. */
export function chip(kind, title, strong, text, unusual) {
  return make("span", { class: kind, title }, strong === null ? null : make("b", {}, strong), text, unusual ? make("em", {}, unusual) : null);
}

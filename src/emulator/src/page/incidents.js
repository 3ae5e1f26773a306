// Incidents: what a person orders to go wrong, told in words before it is ordered and while it is in force.

import { counted, find, lastOf, make, quiet } from "/_emulator/page-words.js";

/** Which requests an incident may strike: words for one and for several of them, and the condition. */
const REQUESTS = [
  ["write", "writes", { method: "PUT|PATCH|POST|DELETE" }],
  ["read", "reads", { method: "GET" }],
  ["request", "requests of any kind", {}],
  ["attach or detach of data disks", "attaches and detaches of data disks", { operation: "*attachDetachDataDisks" }],
  ["write of a virtual machine", "writes of virtual machines", { method: "PUT|PATCH|POST|DELETE", path: "*/virtualMachines/*" }],
  ["write of a disk", "writes of disks", { method: "PUT|PATCH|DELETE", path: "*/Microsoft.Compute/disks/*" }],
  ["write of a load balancer", "writes of load balancers", { method: "PUT|PATCH|DELETE", path: "*/loadBalancers/*" }],
  ["write of a public IP address", "writes of public IP addresses", { method: "PUT|PATCH|DELETE", path: "*/publicIPAddresses/*" }],
  ["write of a security group", "writes of security groups", { method: "PUT|PATCH|DELETE", path: "*/networkSecurityGroups/*" }],
  ["write of a file share", "writes of file shares", { method: "PUT|PATCH|DELETE", path: "*/shares/*" }],
  ["sign-in", "sign-ins", { operation: "login.token" }],
];

const FAILURES = [
  ["500 InternalServerError", { status: 500, code: "InternalServerError" }, "A client tries again."],
  ["409 Conflict", { status: 409, code: "Conflict" }, "Azure says so while another operation works on the resource. A client looks at the resource and tries again."],
  ["403 AuthorizationFailed", { status: 403, code: "AuthorizationFailed" }, "The caller has no role for it. A client tells a person."],
  ["503 ServiceUnavailable", { status: 503, code: "ServiceUnavailable" }, "A client tries again later."],
  ["failure when the operation ends", { lateFailure: { code: "InternalExecutionError", message: "An internal execution error occurred. Please retry later." } }, "Azure accepts the request, and its operation fails. A client finds out by polling, and starts again."],
  ["lost answer", { loseAnswer: "after" }, "Azure does what was asked, and the connection breaks before the answer. A client must find out by reading."],
];

const same = (one, other) => JSON.stringify(Object.entries(one).sort()) === JSON.stringify(Object.entries(other).sort());

/** What an incident strikes, in words; `count` of them. */
function requestWords({ nth, ...matching }, count) {
  const known = REQUESTS.find(([, , condition]) => same(condition, matching));
  const { method, path, operation, bodyContains } = matching;
  const told = known ? known[count === 1 ? 0 : 1] : [
    method ? method.replaceAll("|", " or ") : "", operation ?? "", path ? `of ${path}` : "",
    bodyContains ? `with ${JSON.stringify(bodyContains)}` : "", count === 1 ? "request" : "requests",
  ].filter(Boolean).join(" ");
  return nth > 1 ? `${told}, from number ${nth} on,` : told;
}

/** What happens to them, in words. */
function effectWords({ status, code, retryAfter, delayMs, loseAnswer, lateFailure, headers }, count) {
  const one = count === 1;
  const told = [];
  if (delayMs) told.push(`${one ? "waits" : "wait"} ${delayMs / 1000}\u00a0s`);
  if (loseAnswer) told.push(`${one ? "gets" : "get"} no answer, ${loseAnswer === "after" ? "though Azure does what was asked" : "and Azure does nothing"}`);
  else if (lateFailure) told.push(`${one ? "is" : "are"} accepted and ${one ? "fails" : "fail"} at the end with ${lateFailure.code}`);
  else if (status) told.push(`${one ? "gets" : "get"} ${[status, code ?? (status === 429 ? "TooManyRequests" : "")].filter(Boolean).join(" ")}`);
  if (retryAfter !== undefined) told.push(`${one ? "is" : "are"} told to wait ${retryAfter}\u00a0s`);
  if (headers && Object.keys(headers).length) told.push(`${one ? "has" : "have"} the headers ${Object.keys(headers).join(", ")}`);
  return told.length > 1 ? `${told.slice(0, -1).join(", ")} and ${told.at(-1)}` : told[0] ?? "";
}

/** An incident in one sentence. */
export function incidentWords({ match = {}, then, times = 1 }, left = times) {
  const count = times === 0 ? 2 : left;
  const which = requestWords(match, count);
  const many = times === 0 ? `All ${which}` : left === 1 ? `The next ${which}` : `The next ${left} ${which}`;
  return `${many} ${effectWords(then, count)}.`;
}

async function send(method, path, body) {
  const answer = await fetch(`/_emulator/${path}`, {
    method, headers: { "Content-Type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.ok) return null;
  try {
    return (await answer.json()).error;
  } catch {
    return `the emulator answers ${answer.status}`;
  }
}

// ---- the list ----

let shown = "";

/** Shows what is in force; spent incidents are not. */
export function showIncidents(incidents) {
  const inForce = incidents.filter(({ incident, struck }) => incident.times === 0 || struck < incident.times);
  const now = JSON.stringify(inForce);
  if (now === shown) return;
  shown = now;
  find("#incidents .count").textContent = String(inForce.length);
  find("#incidents .list").replaceChildren(...inForce.map(({ id, incident, struck }) => {
    const times = incident.times ?? 1;
    const words = incidentWords(incident, times - struck);
    const remove = make("button", { class: "small", type: "button", "aria-label": `Take back: ${words}` }, "Take back");
    remove.addEventListener("click", async () => { remove.disabled = true; await send("DELETE", `incidents/${id}`); });
    return make("li", {}, make("span", {}, words, struck ? quiet(` Struck ${counted(struck, "request")} so far.`) : null), remove);
  }));
}

// ---- ordering one ----

/** A labelled field. */
function field(label, control) {
  return make("label", {}, make("span", {}, label), control);
}

function select(name, options, chosen) {
  return make("select", { name }, options.map(([value, text]) =>
    make("option", value === chosen ? { value: String(value), selected: "" } : { value: String(value) }, text)));
}

const number = (name, value, min, max) => make("input", { name, type: "number", min: String(min), max: String(max), value: String(value), required: "" });
const which = () => field("Requests", select("requests", REQUESTS.map(([, many], at) => [at, many])));
const TIMES = [[1, "the next one"], [3, "the next 3"], [10, "the next 10"], [0, "all, until taken back"]];
const howMany = (chosen) => field("How many", select("times", TIMES, chosen));

/** What each button orders: its title, its fields, and what these order and say. */
const ORDERS = {
  throttle: {
    title: "Throttle requests",
    fields: () => [which(), howMany(3), field("Seconds to wait", number("seconds", 5, 1, 3600))],
    incident: (form) => ({ then: { status: 429, code: "TooManyRequests", retryAfter: Number(form.get("seconds")) } }),
    about: () => "Azure does so when a subscription sends too much. A client that keeps Azure's rules sends nothing of the kind for so long, then tries again.",
  },
  fail: {
    title: "Let requests fail",
    fields: () => [which(), howMany(1), field("With", select("failure", FAILURES.map(([text], at) => [at, text])))],
    incident: (form) => ({ then: FAILURES[form.get("failure")][1] }),
    about: (form) => FAILURES[form.get("failure")][2],
  },
  delay: {
    title: "Delay answers",
    fields: () => [which(), howMany(3), field("Seconds", number("seconds", 10, 1, 3600))],
    incident: (form) => ({ then: { delayMs: Number(form.get("seconds")) * 1000 } }),
    about: () => "The request takes effect after that time. A client waits, or gives up and must find out later what became of it.",
  },
};

/** What an order for machines says. */
const machineAbout = (machine) => (machine.power === "running"
  ? "It stops as if its system had crashed: Azure says that it is stopped, its disks stay attached, and nothing is asked of Azure."
  : "It runs again, with the disks that it has.");

function open(title, fields, look, order) {
  const dialog = find("#order");
  const form = find("#order form");
  find("#order h2").textContent = title;
  find("#order .fields").replaceChildren(...fields);
  const refused = find("#order .refused");
  refused.textContent = "";
  const show = () => {
    const { words, about, button } = look(new FormData(form));
    find("#order output").replaceChildren(make("b", {}, words), " ", about);
    find("#order [type=submit]").textContent = button;
    find("#order [type=submit]").disabled = about === "";
  };
  form.oninput = show;
  form.onsubmit = async (event) => {
    event.preventDefault();
    refused.textContent = (await order(new FormData(form))) ?? "";
    if (!refused.textContent) dialog.close();
  };
  show();
  dialog.showModal();
}

function openIncident({ title, fields, incident, about }) {
  const whole = (form) => ({ match: REQUESTS[form.get("requests")][2], times: Number(form.get("times")), ...incident(form) });
  const look = (form) => ({ words: incidentWords(whole(form)), about: about(form), button: "Order it" });
  open(title, fields(), look, (form) => send("POST", "incidents", whole(form)));
}

function openMachines(machines) {
  const chosen = (form) => machines[form.get("machine")];
  const fields = [field("Virtual machine", select("machine", machines.map((machine, at) => [at, `${lastOf(machine.id)}, ${machine.power}`])))];
  const look = (form) => {
    const machine = chosen(form);
    if (!machine) return { words: "There is none that runs or is stopped.", about: "", button: "Stop it" };
    const stops = machine.power === "running";
    return { words: `${lastOf(machine.id)} ${stops ? "stops" : "starts"} at once.`, about: machineAbout(machine), button: stops ? "Stop it" : "Start it" };
  };
  open("Kill a virtual machine", fields, look, (form) => send("POST", "machines", { id: chosen(form).id, runs: chosen(form).power !== "running" }));
}

/** Gives the buttons what they do; `machines` tells those that can be killed or started: id and power. */
export function listenForOrders(machines) {
  for (const button of document.querySelectorAll("#incidents [data-order]")) {
    button.addEventListener("click", () => {
      const order = ORDERS[button.dataset.order];
      if (order) openIncident(order);
      else openMachines(machines());
    });
  }
  for (const close of document.querySelectorAll("dialog .close")) close.addEventListener("click", () => close.closest("dialog").close());
  // A click beside a dialog closes it.
  for (const dialog of document.querySelectorAll("dialog")) dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

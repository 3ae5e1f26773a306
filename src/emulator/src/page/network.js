// How the page shows what the network has: a card for each load balancer, a line for each security rule and route.

import { capital, cell, chip, counted, lines, make, mono, opensResource, quiet, spaced, stateOf, table } from "/_emulator/page-words.js";

export const BALANCERS = "microsoft.network/loadbalancers";
export const GROUPS = "microsoft.network/networksecuritygroups";
export const ROUTES = "microsoft.network/routetables";
export const ADDRESSES = "microsoft.network/publicipaddresses";
export const INTERFACES = "microsoft.network/networkinterfaces";
export const NETWORKS = "microsoft.network/virtualnetworks";

const nameCell = (row) => cell("name", opensResource(row));
const stateCell = (row) => cell("short", stateOf(row.state, row.busy));
const serviceChip = (name) => chip("lun service", `Service ${name}`, "Service", name);
const none = (text) => quiet(text);

/** The head of a card: name, state, and what is told beside them. */
const cardHead = (row, ...told) => make("header", {}, make("h3", {}, opensResource(row)), stateOf(row.state, row.busy), quiet(told.filter(Boolean).join(", ")));

// ---- load balancers ----

function frontend({ name, address, from, services }) {
  return make("div", { class: "frontend" },
    make("b", { class: "address mono", title: `frontend ${name}` }, address || "no address yet"),
    services.map(serviceChip),
    quiet(services.length ? "" : `frontend ${name}`, from ? ` by ${from}` : ""));
}

function probeWords(probe) {
  const path = probe.path ? ` ${probe.path}` : "";
  return `${capital(spaced(probe.protocol))} ${probe.port}${path}, every ${probe.interval}\u00a0s`;
}

function ruleRow(rule, balancer) {
  const probe = balancer.probes.find((one) => one.name === rule.probe);
  const of = balancer.frontends.find((one) => one.name === rule.frontend);
  const ports = rule.port === "0" ? "all ports" : rule.port === rule.backendPort ? rule.port : `${rule.port} → ${rule.backendPort}`;
  return make("tr", {},
    cell("short", make("span", { class: "mono", title: `rule ${rule.name}` }, `${rule.protocol.toUpperCase()} ${ports}`)),
    balancer.frontends.length > 1 ? cell("", mono(of?.address || rule.frontend)) : null,
    balancer.pools.length > 1 ? cell("", rule.pool || none("no pool")) : null,
    cell("", probe ? probeWords(probe) : none("no probe")),
    cell("minor", rule.options.join(", ") || none("–")));
}

function pool({ name, total, members }) {
  const more = total > members.length ? none(`and ${total - members.length} more`) : null;
  return make("div", { class: "pool" }, make("b", {}, `Pool ${name}`), " ", none(counted(total, "member")), make("div", {},
    members.length ? members.map((member) => chip("lun", member, null, member)) : none("no member"), more));
}

function balancerCard(row) {
  const { balancer } = row.network;
  const many = (list, title) => (list.length > 1 ? [[title]] : []);
  const columns = [["Rule"], ...many(balancer.frontends, "Address"), ...many(balancer.pools, "Pool"), ["Probe"], ["Options", "minor"]];
  return make("article", { class: "card", "data-id": row.id },
    cardHead(row, balancer.kind, row.sku),
    balancer.frontends.length ? balancer.frontends.map(frontend) : make("p", { class: "empty" }, "No frontend: it has no address and forwards nothing."),
    balancer.rules.length ? make("div", { class: "table" }, table(columns, balancer.rules.map((rule) => ruleRow(rule, balancer)))) : null,
    balancer.pools.map(pool),
    balancer.others ? make("div", { class: "others" }, lines(balancer.others)) : null);
}

// ---- security rules ----

const listed = (list, all) => list.map((one) => (one === "*" ? all : one)).join(", ");

/** A rule in one line, whole. */
function ruleWords(rule) {
  const allow = rule.access === "Allow";
  const protocol = rule.protocol === "*" ? "any protocol" : rule.protocol.toUpperCase();
  const sourcePorts = rule.sourcePorts.join() === "*" ? "" : `, source port ${listed(rule.sourcePorts, "any")}`;
  return [
    make("span", { class: `state ${allow ? "ok" : "deny"}` }, allow ? "allow" : "deny"),
    ` ${rule.direction === "Inbound" ? "in" : "out"} ${protocol} from `, mono(listed(rule.sources, "anywhere")), sourcePorts,
    " to ", mono(listed(rule.destinations, "anywhere")),
    rule.ports.join() === "*" ? ", any port" : ", port ", rule.ports.join() === "*" ? "" : mono(listed(rule.ports, "any")),
  ];
}

function groupCard(row) {
  const rules = row.network.securityRules;
  const own = rules.filter((rule) => !rule.builtIn).length;
  const rows = rules.map((rule) => make("tr", rule.builtIn ? { class: "built-in" } : {},
    cell("number", String(rule.priority)), cell("words", ...ruleWords(rule)), cell("minor", make("span", { class: "mono" }, rule.name))));
  return make("article", { class: "card wide", "data-id": row.id },
    cardHead(row, `${counted(own, "rule")} and ${rules.length - own} of every group`),
    make("div", { class: "table" }, table([["Priority", "number"], ["Rule"], ["Name", "minor"]], rows)));
}

// ---- the others ----

function routeWords(route) {
  const hop = route.hop === "VirtualAppliance" ? "" : `${spaced(route.hop)} `;
  const to = route.machine ? `${route.machine} ` : "";
  return make("div", { class: "line", title: `route ${route.name}` }, mono(route.prefix), ` → ${to}${hop}`, route.address ? quiet(mono(route.address)) : null);
}

function routesRow(row) {
  const routes = row.network.routes;
  return [nameCell(row), stateCell(row), cell("facts", routes.length ? routes.map(routeWords) : none("no route"))];
}

function addressRow(row) {
  const { address, services, usedBy, dns } = row.network.address;
  return [
    nameCell(row), stateCell(row),
    cell("short", address ? mono(address) : none("no address yet")),
    cell("", services.map(serviceChip), usedBy ? quiet(`${services.length ? "on " : ""}${usedBy}`) : none("not used"), dns ? make("div", {}, mono(dns)) : null),
  ];
}

function interfaceRow(row) {
  const { addresses, machine, pools, securityGroup } = row.network.interface;
  return [
    nameCell(row), stateCell(row),
    cell("short", lines(addresses.map((address) => mono(address)))),
    cell("", machine || none("no machine")),
    cell("minor", lines([...pools.map((one) => `pool ${one}`), ...(securityGroup ? [`security group ${securityGroup}`] : [])])),
  ];
}

function subnetWords({ name, prefixes, securityGroup, routeTable }) {
  const more = [securityGroup ? `security group ${securityGroup}` : "", routeTable ? `route table ${routeTable}` : ""].filter(Boolean).join(", ");
  return make("div", { class: "line" }, make("b", {}, name), " ", mono(prefixes.join(", ")), more ? quiet(` ${more}`) : null);
}

function networkRow(row) {
  const { prefixes, subnets } = row.network.network;
  return [nameCell(row), stateCell(row), cell("short", lines(prefixes.map((one) => mono(one)))), cell("facts", subnets.length ? subnets.map(subnetWords) : none("no subnet"))];
}

/** How each type is shown: cards, or columns with a function for the cells of a row. */
export const LAYOUTS = {
  [BALANCERS]: { card: balancerCard },
  [GROUPS]: { card: groupCard },
  [ROUTES]: { columns: [["Name"], ["State"], ["Routes"]], row: routesRow },
  [ADDRESSES]: { columns: [["Name"], ["State"], ["Address"], ["For"]], row: addressRow },
  [INTERFACES]: { columns: [["Name"], ["State"], ["Address"], ["Machine"], ["Named in", "minor"]], row: interfaceRow },
  [NETWORKS]: { columns: [["Name"], ["State"], ["Prefix"], ["Subnets"]], row: networkRow },
};

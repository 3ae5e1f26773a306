//! Templates of deployments: from a template and its parameters to resources in an order.
//!
//! What is understood is what tools generate: parameters, variables, resources with `dependsOn`, `condition` and children,
//! outputs, and the functions of [`expression`]. Loops (`copy`), linked templates and deployments at other scopes are
//! refused, as a template that this cloud cannot deploy. Nothing here touches a resource.

mod expression;
mod values;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use expression::Scope;
use values::Values;

use crate::fault::{self, Fault};
use crate::path;

/// Members of a resource of a template that are not of its body.
const OF_TEMPLATE: [&str; 9] =
    ["apiVersion", "type", "name", "dependsOn", "condition", "comments", "metadata", "resources", "scope"];

/// A resource that a template makes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) api_version: String,
    /// The body of its PUT.
    pub(crate) body: Value,
    /// Places of those that must be there first.
    pub(crate) after: Vec<usize>,
}

/// An accepted deployment, for the task that carries it out.
pub(crate) struct Deployment {
    /// Its operation, which is held until the last resource has ended.
    pub(crate) operation: String,
    pub(crate) steps: Vec<Planned>,
    /// Whose roles count.
    pub(crate) principal: String,
    /// `http://host:port` of the caller.
    pub(crate) base: String,
}

/// What a template makes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Parameters as the deployment shows them: type and value, of secure ones the type alone.
    pub(crate) parameters: Value,
    pub(crate) resources: Vec<Planned>,
    /// Outputs whose values are told by what the resources have become.
    outputs: Map<String, Value>,
    values: Values,
}

/// Reads a deployment's `properties`.
///
/// # Errors
///
/// 400 `InvalidTemplate` with what is wrong or not understood.
pub(crate) fn plan(properties: &Value, scope: &Scope) -> Result<Plan, Fault> {
    let template = &properties["template"];
    if properties["templateLink"].is_object() {
        return Err(fault::template_not_emulated("templateLink"));
    }
    if properties["mode"].as_str().is_some_and(|mode| !mode.eq_ignore_ascii_case("Incremental")) {
        return Err(fault::template_not_emulated("the mode Complete"));
    }
    let resources = template["resources"].as_array().ok_or_else(|| fault::invalid_template("it has no resources"))?;
    let (parameters, shown) = parameters(&template["parameters"], &properties["parameters"])?;
    let none = Map::new();
    let values = Values::new(parameters, template["variables"].as_object().unwrap_or(&none), scope)?;
    let mut found = Vec::new();
    for resource in resources {
        flatten(resource, None, &values, scope, &mut found)?;
    }
    let mut planned = Vec::new();
    for (id, resource) in &found {
        let wanted = resource["dependsOn"].as_array().into_iter().flatten();
        let mut after = Vec::new();
        for depends in wanted {
            let named = text(&evaluate(depends, &values, scope)?);
            let place = found.iter().position(|(other, _)| is_named(other, &named));
            // One whose condition does not hold is not waited for.
            after.extend(place);
        }
        let mut body = Map::new();
        for (member, value) in resource.as_object().into_iter().flatten() {
            if !OF_TEMPLATE.contains(&member.as_str()) {
                body.insert(member.clone(), evaluate(value, &values, scope)?);
            }
        }
        let api_version = text(&resource["apiVersion"]);
        planned.push(Planned { id: id.clone(), api_version, body: Value::Object(body), after });
    }
    check_order(&planned)?;
    let outputs = template["outputs"].as_object().cloned().unwrap_or_default();
    Ok(Plan { parameters: shown, resources: planned, outputs, values })
}

impl Plan {
    /// The outputs, told by `scope` of what the resources have become.
    ///
    /// # Errors
    ///
    /// 400 where an expression names what is not there.
    pub(crate) fn outputs(&self, scope: &Scope) -> Result<Value, Fault> {
        let mut shown = Map::new();
        for (name, output) in &self.outputs {
            let value = evaluate(&output["value"], &self.values, scope)?;
            let kind = text(&output["type"]);
            let mut one = Map::from_iter([("type".to_owned(), Value::from(kind.clone()))]);
            if !is_secure(&kind) {
                one.insert("value".to_owned(), value);
            }
            shown.insert(name.clone(), Value::Object(one));
        }
        Ok(Value::Object(shown))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

fn is_secure(kind: &str) -> bool {
    kind.to_ascii_lowercase().starts_with("secure")
}

/// The values of parameters, and what is shown of them.
fn parameters(declared: &Value, given: &Value) -> Result<(BTreeMap<String, Value>, Value), Fault> {
    let (mut values, mut shown) = (BTreeMap::new(), Map::new());
    let empty = Map::new();
    let declared = declared.as_object().unwrap_or(&empty);
    for name in given.as_object().into_iter().flat_map(Map::keys) {
        if !declared.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(fault::invalid_template(format!("the parameter '{name}' is not declared in it")));
        }
    }
    for (name, declaration) in declared {
        let given = given.as_object().and_then(|given| given.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)));
        if given.is_some_and(|(_, given)| given["reference"].is_object()) {
            return Err(fault::template_not_emulated("a parameter from a key vault"));
        }
        let value = given.and_then(|(_, given)| given.get("value")).or_else(|| declaration.get("defaultValue"));
        let value = value.ok_or_else(|| fault::invalid_template(format!("the parameter '{name}' has no value")))?;
        let kind = text(&declaration["type"]);
        let mut one = Map::from_iter([("type".to_owned(), Value::from(kind.clone()))]);
        if !is_secure(&kind) {
            one.insert("value".to_owned(), value.clone());
        }
        shown.insert(name.clone(), Value::Object(one));
        values.insert(name.to_ascii_lowercase(), value.clone());
    }
    Ok((values, Value::Object(shown)))
}

/// A resource and its children, each with its id, where its condition holds.
fn flatten(
    resource: &Value,
    parent: Option<(&str, &str)>,
    values: &Values,
    scope: &Scope,
    found: &mut Vec<(String, Value)>,
) -> Result<(), Fault> {
    if let Some(member) =
        ["copy", "resourceGroup", "subscriptionId"].into_iter().find(|member| resource.get(*member).is_some())
    {
        return Err(fault::template_not_emulated(member));
    }
    let holds = resource.get("condition").map(|condition| evaluate(condition, values, scope)).transpose()?;
    if holds == Some(Value::Bool(false)) {
        return Ok(());
    }
    let of = |member: &str| evaluate(&resource[member], values, scope).map(|value| text(&value));
    let (mut kind, mut name) = (of("type")?, of("name")?);
    if kind.is_empty() || name.is_empty() || !resource["apiVersion"].is_string() {
        return Err(fault::invalid_template("a resource of it lacks 'type', 'name' or 'apiVersion'"));
    }
    if let Some((parent_kind, parent_name)) = parent {
        kind = if kind.contains('.') { kind } else { format!("{parent_kind}/{kind}") };
        name = if name.contains('/') { name } else { format!("{parent_name}/{name}") };
    }
    let id = id_of(&scope.group_id, &kind, &name)
        .ok_or_else(|| fault::invalid_template(format!("'{name}' has not as many segments as its type '{kind}'")))?;
    let mut own = resource.clone();
    if let Some((parent_kind, parent_name)) = parent
        && let Some(parent) = id_of(&scope.group_id, parent_kind, parent_name)
    {
        let mut after = own["dependsOn"].as_array().cloned().unwrap_or_default();
        after.push(Value::from(parent));
        own["dependsOn"] = Value::Array(after);
    }
    found.push((id, own));
    for child in resource["resources"].as_array().into_iter().flatten() {
        flatten(child, Some((&kind, &name)), values, scope, found)?;
    }
    Ok(())
}

/// The id of a resource in a group: `A.B/x/y` and `p/c` are `A.B/x/p/y/c`.
fn id_of(group: &str, kind: &str, name: &str) -> Option<String> {
    let (namespace, kinds) = kind.split_once('/')?;
    let (kinds, names): (Vec<&str>, Vec<&str>) = (kinds.split('/').collect(), name.split('/').collect());
    let pairs = (kinds.len() == names.len()).then(|| kinds.iter().zip(names))?;
    let below: String = pairs.map(|(kind, name)| format!("/{kind}/{name}")).collect();
    Some(format!("{group}/providers/{namespace}{below}"))
}

/// Whether `dependsOn` means this resource: by its id, by type and name, or by its name alone.
fn is_named(id: &str, named: &str) -> bool {
    let (id, named) = (path::key(id), path::key(named));
    let below = id.split_once("/providers/").map_or(id.as_str(), |(_, below)| below);
    // `A.B/x/y/p/c` and `A.B/x/p/y/c` are both written.
    let by_type = || {
        let segments: Vec<&str> = named.split('/').collect();
        let names = segments.len().saturating_sub(1) / 2;
        let (kind, name) = segments.split_at(segments.len() - names);
        id_of("", &kind.join("/"), &name.join("/"))
            .is_some_and(|other| other.trim_start_matches("/providers/") == below)
    };
    id == named || below == named || path::name_of(&id) == named || by_type()
}

/// Refuses resources that wait for each other.
fn check_order(planned: &[Planned]) -> Result<(), Fault> {
    let mut done = vec![false; planned.len()];
    loop {
        let is_next = |at: &usize| !done[*at] && planned[*at].after.iter().all(|before| done[*before]);
        let Some(next) = (0..planned.len()).find(is_next) else { break };
        done[next] = true;
    }
    match done.iter().position(|done| !done) {
        Some(at) => {
            let name = path::name_of(&planned[at].id);
            Err(fault::invalid_template(format!("the resource '{name}' waits for itself, by what it depends on")))
        }
        None => Ok(()),
    }
}

/// A value with its expressions evaluated, wherever they stand. Members that are null are left out, as Azure does.
fn evaluate(value: &Value, values: &Values, scope: &Scope) -> Result<Value, Fault> {
    Ok(match value {
        Value::String(text) => expression::text(text, values, scope)?,
        Value::Array(items) => {
            items.iter().map(|item| evaluate(item, values, scope)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Object(members) => {
            let mut own = Map::new();
            for (name, member) in members {
                let member = evaluate(member, values, scope)?;
                if !member.is_null() {
                    own.insert(name.clone(), member);
                }
            }
            Value::Object(own)
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GROUP: &str = "/subscriptions/s/resourceGroups/g";

    fn scope() -> Scope {
        Scope {
            group_id: GROUP.to_owned(),
            location: "westeurope".to_owned(),
            subscription: "s".to_owned(),
            tenant: "t".to_owned(),
            reference: Box::new(|id| {
                let lb = format!("{GROUP}/providers/Microsoft.Network/loadBalancers/lb");
                [lb.as_str(), "lb"].contains(&id).then(|| json!({"provisioningState": "Succeeded", "ports": [1, 2]}))
            }),
        }
    }

    fn resource(kind: &str, name: &str, after: &[&str]) -> Value {
        json!({"type": kind, "name": name, "apiVersion": "2025-05-01", "location": "[resourceGroup().location]", "dependsOn": after})
    }

    fn planned(template: Value, parameters: Value) -> Result<Plan, Fault> {
        plan(&json!({"template": template, "parameters": parameters, "mode": "Incremental"}), &scope())
    }

    #[test]
    fn resources_wait_for_those_that_they_name_in_each_way() {
        let template = json!({"resources": [
            resource("Microsoft.Network/loadBalancers", "lb", &[
                "Microsoft.Network/publicIpAddresses/ip", "[resourceId('Microsoft.Network/virtualNetworks/subnets', 'net', 'sub')]", "nsg",
            ]),
            resource("Microsoft.Network/publicIPAddresses", "ip", &[]),
            resource("Microsoft.Network/virtualNetworks", "net", &[]),
            resource("Microsoft.Network/virtualNetworks/subnets", "net/sub", &["Microsoft.Network/virtualNetworks/net"]),
            resource("Microsoft.Network/networkSecurityGroups", "nsg", &["Microsoft.Network/virtualNetworks/subnets/net/sub", "left-out"]),
        ]});
        let plan = planned(template, json!({})).unwrap();
        let after: Vec<&[usize]> = plan.resources.iter().map(|one| one.after.as_slice()).collect();
        assert_eq!(after, [&[1, 3, 4][..], &[], &[], &[2], &[3]]);
        assert_eq!(
            plan.resources[3].id,
            format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/net/subnets/sub")
        );
        assert_eq!(plan.resources[0].body, json!({"location": "westeurope"}));
    }

    #[test]
    fn secure_parameters_are_used_and_never_shown() {
        let template = json!({
            "parameters": {"secret": {"type": "SecureString"}, "size": {"type": "int", "defaultValue": 3}},
            "variables": {"twice": "[concat(parameters('SECRET'), '-', string(parameters('size')))]"},
            "resources": [{"type": "A.B/x", "name": "n", "apiVersion": "1", "properties": {"p": "[variables('twice')]", "none": null, "list": ["[[not]"]}}],
            "outputs": {"state": {"type": "string", "value": "[reference('lb').provisioningState]"}, "port": {"type": "int", "value": "[reference('lb', providers('Microsoft.Network', 'loadBalancers').apiVersions[0]).ports[1]]"}},
        });
        let plan = planned(template, json!({"Secret": {"value": "hush"}})).unwrap();
        assert_eq!(plan.resources[0].body, json!({"properties": {"p": "hush-3", "list": ["[not]"]}}));
        assert_eq!(plan.parameters, json!({"secret": {"type": "SecureString"}, "size": {"type": "int", "value": 3}}));
        let outputs = json!({"state": {"type": "string", "value": "Succeeded"}, "port": {"type": "int", "value": 2}});
        assert_eq!(plan.outputs(&scope()).unwrap(), outputs);
    }

    #[test]
    fn children_go_below_their_parent_and_a_condition_leaves_out() {
        let template = json!({"resources": [
            {"type": "A.B/x", "name": "p", "apiVersion": "1", "resources": [{"type": "y", "name": "c", "apiVersion": "1"}]},
            {"type": "A.B/x", "name": "q", "apiVersion": "1", "condition": "[equals(length(createArray()), 1)]"},
        ]});
        let plan = planned(template, json!({})).unwrap();
        let shown: Vec<_> =
            plan.resources.iter().map(|one| (one.id.trim_start_matches(GROUP), one.after.as_slice())).collect();
        assert_eq!(shown, [("/providers/A.B/x/p", &[][..]), ("/providers/A.B/x/p/y/c", &[0])]);
    }

    #[test]
    fn what_is_wrong_or_not_understood_is_refused_by_name() {
        let one = |extra: Value| {
            let mut resource = resource("A.B/x", "n", &[]);
            resource.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            planned(json!({"resources": [resource]}), json!({})).unwrap_err()
        };
        for (extra, word) in [
            (json!({"copy": {"name": "c", "count": 2}}), "copy"),
            (json!({"properties": {"p": "[uniqueString('a')]"}}), "uniqueString"),
            (json!({"properties": {"p": "[parameters('none')]"}}), "none"),
            (json!({"properties": {"p": "[concat('a']"}}), "concat('a'"),
            (json!({"dependsOn": ["n"]}), "waits for itself"),
            (json!({"name": "a/b"}), "segments"),
        ] {
            let refused = one(extra);
            assert_eq!((refused.status, refused.code.as_str()), (400, "InvalidTemplate"));
            assert!(refused.message.contains(word), "{}", refused.message);
        }
        let missing =
            planned(json!({"parameters": {"p": {"type": "string"}}, "resources": []}), json!({})).unwrap_err();
        assert!(missing.message.contains("'p' has no value"), "{}", missing.message);
        let undeclared = planned(json!({"resources": []}), json!({"p": {"value": 1}})).unwrap_err();
        assert!(undeclared.message.contains("'p' is not declared"), "{}", undeclared.message);
    }
}

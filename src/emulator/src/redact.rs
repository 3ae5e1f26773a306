//! Takes secrets out of what the emulator shows of requests and resources: the call log, the dump, the page, the
//! scenario. Clients of Azure's own interfaces get what Azure would give them; nothing here touches that.

use serde_json::Value;

/// What stands in place of a secret.
pub(crate) const REDACTED: &str = "<redacted>";

/// Members whose value is a secret wherever they stand, in any letter case: passwords and scripts of virtual machines,
/// settings of extensions, secrets of clients, keys of accounts, access signatures and tokens.
const SECRET_MEMBERS: [&str; 16] = [
    "accesssas",
    "accesstoken",
    "access_token",
    "accountkey",
    "adminpassword",
    "clientsecret",
    "client_secret",
    "connectionstring",
    "customdata",
    "password",
    "primarykey",
    "protectedsettings",
    "secondarykey",
    "secret",
    "sharedkey",
    "userdata",
];

/// Replaces the secrets in a document.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(members) => {
            // A deployment: which of its parameters are secret stands in its template.
            if members.contains_key("template") {
                let given = members.get_mut("parameters").and_then(Value::as_object_mut);
                for (_, given) in given.into_iter().flatten() {
                    *given = Value::from(REDACTED);
                }
            }
            // An answer file of Windows' set-up, which may name passwords.
            let answer_file = members.contains_key("passName") || members.contains_key("settingName");
            for (name, member) in members {
                let secret = SECRET_MEMBERS.iter().any(|secret| secret.eq_ignore_ascii_case(name));
                if secret || answer_file && name == "content" {
                    if !member.is_null() {
                        *member = Value::from(REDACTED);
                    }
                } else {
                    redact(member);
                }
            }
        }
        Value::String(text) => {
            if let Some(without) = without_signature(text) {
                *text = without;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text of a URL with an access signature without its query; none where it has no signature.
fn without_signature(text: &str) -> Option<String> {
    let (address, query) = text.split_once('?')?;
    let signed = query.split('&').any(|pair| pair.split_once('=').is_some_and(|(name, _)| is_signature(name)));
    signed.then(|| format!("{address}?{REDACTED}"))
}

fn is_signature(parameter: &str) -> bool {
    parameter.eq_ignore_ascii_case("sig") || parameter.eq_ignore_ascii_case("signature")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_replaced_wherever_they_stand_and_nothing_else_is() {
        let mut document = json!({
            "properties": {
                "osProfile": {
                    "adminUsername": "someone",
                    "AdminPassword": "hidden-1",
                    "customData": "hidden-2",
                    "windowsConfiguration": {"additionalUnattendContent": [
                        {"passName": "OobeSystem", "settingName": "AutoLogon", "content": "hidden-3"},
                    ]},
                },
                "userData": null,
                "creationData": {"sourceUri": "https://a.blob/b?sv=1&SIG=hidden-4"},
                "list": [{"accessSAS": "hidden-5"}],
                "content": "shown",
                "question": "what?a=b",
            },
        });
        redact(&mut document);
        assert!(!document.to_string().contains("hidden"), "{document}");
        let properties = &document["properties"];
        assert_eq!(properties["osProfile"]["adminUsername"], "someone");
        assert_eq!(properties["osProfile"]["AdminPassword"], REDACTED);
        assert_eq!(properties["creationData"]["sourceUri"], "https://a.blob/b?<redacted>");
        assert_eq!((&properties["content"], &properties["question"]), (&json!("shown"), &json!("what?a=b")));
        assert!(properties["userData"].is_null());
    }
}

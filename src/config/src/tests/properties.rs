//! Properties that hold for every document.

use proptest::prelude::*;
use serde_json::Map;

use super::*;

/// Every key that has a simple value, so that the properties meet all of them.
fn anything() -> impl Strategy<Value = Value> {
    let number = prop_oneof![Just(Value::Null), (0i64..100_000).prop_map(|n| json!(n))];
    let flag = prop_oneof![Just(Value::Null), any::<bool>().prop_map(|b| json!(b))];
    let text = prop_oneof![
        Just(Value::Null),
        "[a-zA-Z0-9./_-]{0,12}".prop_map(|t| json!(t)),
        "[ -~äß]{0,8}".prop_map(|t| json!(t)),
        (0u32..9999).prop_map(|n| json!(n)),
    ];
    let key = |name: &'static str, values: BoxedStrategy<Value>| values.prop_map(move |v| (name, v));
    let (number, flag, text) = (number.boxed(), flag.boxed(), text.boxed());
    let word = prop::sample::select(vec!["vmss", "Standard", "vmssFLEX"]).prop_map(|w| json!(w));
    (
        key("vnetName", text.clone()),
        key("routeTableName", text.clone()),
        key("resourceGroup", prop::sample::select(vec![json!("G"), json!("g x")]).boxed()),
        key("vmssCacheTTLInSeconds", number.clone()),
        key("cloudProviderBackoffExponent", number),
        key("enableVmssFlexNodes", flag.clone()),
        key("excludeMasterFromStandardLB", flag),
        key("vmType", word.boxed()),
        key("userAgent", text),
        prop::collection::btree_map("[a-z]{1,3}", "[ -~]{0,5}", 0..3),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, tags)| {
            let mut changes = Map::new();
            for (key, value) in [a, b, c, d, e, f, g, h, i] {
                changes.insert(key.to_owned(), value);
            }
            changes.insert("tagsMap".to_owned(), json!(tags));
            with(Value::Object(changes))
        })
}

proptest! {
    #[test]
    fn any_casing_of_the_keys_gives_the_same_configuration(
        value in anything(), upper in prop::collection::vec(any::<bool>(), 64)
    ) {
        let mut recased = Map::new();
        for (key, value) in value.as_object().expect("is an object") {
            let key: String = key.chars().zip(upper.iter().cycle())
                .map(|(c, up)| if *up { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
                .collect();
            recased.insert(key, value.clone());
        }
        let (plain, recased) = (load(&value).expect("loads"), load(&Value::Object(recased)).expect("loads"));
        prop_assert_eq!(plain, recased);
    }

    #[test]
    fn json_and_yaml_give_the_same_configuration(value in anything()) {
        let mut text = String::from("# as YAML\n");
        for (key, value) in value.as_object().expect("is an object") {
            // Block mapping with flow scalars: JSON scalars are YAML scalars.
            text += &format!("{key}: {value}\n");
        }
        let from_yaml = yaml(&text).expect("loads");
        prop_assert_eq!(load(&value).expect("loads"), from_yaml);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(document) = Document::parse("x", &bytes) {
            let variables = BTreeMap::new();
            let _ = Config::from_documents(Some(&document), None, &Environment::new(&variables));
        }
    }
}

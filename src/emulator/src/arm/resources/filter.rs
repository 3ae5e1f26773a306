//! `$filter` of the gateway's list of resources. Documented (resources 2021-04-01): `eq` and `ne` of a few
//! members, `substringof('text', name)`, `startswith(tagName, 'text')`, joined by `and` and `or`; parentheses
//! as OData has them. What is said of a tag's name and of its value in one chain of `and` is said of one tag.

use serde_json::Value;

use crate::path;

/// What must hold of a resource.
#[derive(Debug, PartialEq)]
pub(crate) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Says { member: String, how: How, text: String },
}

/// How a member is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    Is,
    IsNot,
    Contains,
    Begins,
}

const COMPARED: [&str; 6] = ["resourcetype", "name", "location", "resourcegroup", "tagname", "tagvalue"];
const CONTAINED: [&str; 2] = ["name", "resourcegroup"];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Open,
    Close,
    Comma,
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        found.push(match letter {
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            '\'' => {
                let mut value = String::new();
                loop {
                    match letters.next()? {
                        // In a value a quote is written twice.
                        '\'' if letters.next_if_eq(&'\'').is_some() => value.push('\''),
                        '\'' => break,
                        other => value.push(other),
                    }
                }
                Token::Text(value)
            }
            letter if letter.is_whitespace() => continue,
            letter => {
                let mut word = letter.to_string();
                while let Some(next) = letters.next_if(|c| c.is_alphanumeric() || matches!(c, '/' | '_')) {
                    word.push(next);
                }
                Token::Word(word.to_ascii_lowercase())
            }
        });
    }
    Some(found)
}

/// Reads a filter; `None` when it is none of those that are documented.
pub(crate) fn read(text: &str) -> Option<Filter> {
    let mut reader = Reader { tokens: tokens(text)?, at: 0, depth: 0 };
    let filter = reader.any()?;
    (reader.at == reader.tokens.len()).then_some(filter)
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Reader {
    fn next(&mut self) -> Option<Token> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    fn takes(&mut self, token: &Token) -> bool {
        let there = self.tokens.get(self.at) == Some(token);
        self.at += usize::from(there);
        there
    }

    fn takes_word(&mut self, word: &str) -> bool {
        self.takes(&Token::Word(word.to_owned()))
    }

    fn any(&mut self) -> Option<Filter> {
        let mut parts = vec![self.all()?];
        while self.takes_word("or") {
            parts.push(self.all()?);
        }
        Some(Filter::Any(parts))
    }

    fn all(&mut self) -> Option<Filter> {
        let mut parts = vec![self.one()?];
        while self.takes_word("and") {
            parts.push(self.one()?);
        }
        Some(Filter::All(parts))
    }

    fn one(&mut self) -> Option<Filter> {
        match self.next()? {
            Token::Open => {
                // No client nests deeper, and the stack is limited.
                self.depth += 1;
                let inner = (self.depth < 64).then(|| self.any())??;
                self.depth -= 1;
                self.takes(&Token::Close).then_some(inner)
            }
            Token::Word(function) if function == "substringof" || function == "startswith" => {
                let (first, second) = self.arguments()?;
                let (how, member, text) = match (function.as_str(), first, second) {
                    ("substringof", Token::Text(text), Token::Word(member)) => (How::Contains, member, text),
                    ("startswith", Token::Word(member), Token::Text(text)) => (How::Begins, member, text),
                    _ => return None,
                };
                let known = if how == How::Contains { CONTAINED.as_slice() } else { &["tagname"] };
                known.contains(&member.as_str()).then_some(Filter::Says { member, how, text })
            }
            Token::Word(member) if COMPARED.contains(&member.as_str()) => {
                let how = match self.next()? {
                    Token::Word(operator) if operator == "eq" => How::Is,
                    Token::Word(operator) if operator == "ne" && !member.starts_with("tag") => How::IsNot,
                    _ => return None,
                };
                match self.next()? {
                    Token::Text(text) => Some(Filter::Says { member, how, text }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn arguments(&mut self) -> Option<(Token, Token)> {
        let opened = self.takes(&Token::Open);
        let first = self.next()?;
        let divided = self.takes(&Token::Comma);
        let second = self.next()?;
        (opened && divided && self.takes(&Token::Close)).then_some((first, second))
    }
}

impl Filter {
    /// Whether it asks for tags anywhere. Documented: then tags are not shown.
    pub(crate) fn names_tags(&self) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::names_tags),
            Self::Says { member, .. } => member.starts_with("tag"),
        }
    }

    /// Whether it holds of a resource.
    pub(crate) fn holds(&self, doc: &Value) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.holds(doc)),
            Self::All(parts) => {
                let (of_tags, others): (Vec<&Self>, Vec<&Self>) = parts
                    .iter()
                    .partition(|part| matches!(part, Self::Says { member, .. } if member.starts_with("tag")));
                let one_tag = || {
                    doc["tags"].as_object().into_iter().flatten().any(|(name, value)| {
                        of_tags.iter().all(|part| part.holds_of_tag(name, value.as_str().unwrap_or("")))
                    })
                };
                others.iter().all(|part| part.holds(doc)) && (of_tags.is_empty() || one_tag())
            }
            Self::Says { member, how, text } => {
                let id = doc["id"].as_str().unwrap_or("");
                let have = match member.as_str() {
                    "resourcetype" => doc["type"].as_str().unwrap_or(""),
                    "resourcegroup" => path::group_of(id),
                    member => doc[member].as_str().unwrap_or(""),
                };
                if member == "location" {
                    return how.compares(have, &path::location(text));
                }
                how.compares(have, text)
            }
        }
    }

    /// Names of tags in any letter case, values as they are (documented).
    fn holds_of_tag(&self, name: &str, value: &str) -> bool {
        match self {
            Self::Says { member, how, text } if member == "tagname" => how.compares(name, text),
            Self::Says { text, .. } => value == text,
            _ => false,
        }
    }
}

impl How {
    fn compares(self, have: &str, text: &str) -> bool {
        let (have, text) = (have.to_lowercase(), text.to_lowercase());
        match self {
            Self::Is => have == text,
            Self::IsNot => have != text,
            Self::Contains => have.contains(&text),
            Self::Begins => have.starts_with(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(filter: &str) -> bool {
        let doc = json!({
            "id": "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/disks/Data-1",
            "name": "Data-1", "type": "Microsoft.Compute/disks", "location": "westeurope",
            "tags": {"Owner": "it's me", "other": "Dev"},
        });
        read(filter).unwrap_or_else(|| panic!("{filter}")).holds(&doc)
    }

    #[test]
    fn what_is_documented_is_understood() {
        for filter in [
            "resourceType eq 'microsoft.compute/DISKS'",
            "resourceType eq 'a/b' or resourceType eq 'Microsoft.Compute/disks'",
            "name ne 'other' and location eq 'West Europe'",
            "substringof('data', name) or substringof('x', resourceGroup)",
            "substringof('DATA',name) and resourcegroup eq 'g'",
            "(name eq 'x' or name eq 'data-1') and (location eq 'westeurope')",
            "tagName eq 'owner' and tagValue eq 'it''s me'",
            "startswith(tagName, 'own')",
        ] {
            assert!(holds(filter), "{filter}");
        }
        for filter in [
            "tagName eq 'Owner' and tagValue eq 'Dev'",
            "tagName eq 'other' and tagValue eq 'dev'",
            "name eq 'x' or name eq 'data-1' and location eq 'eastus'",
            "resourceType ne 'Microsoft.Compute/disks'",
            "startswith(tagName,'x')",
        ] {
            assert!(!holds(filter), "{filter}");
        }
    }

    #[test]
    fn what_is_not_documented_is_refused() {
        let deep = format!("{}name eq 'a'{}", "(".repeat(5000), ")".repeat(5000));
        for filter in [
            "name",
            "name eq",
            "name eq a",
            "name gt 'a'",
            "color eq 'red'",
            "name eq 'a",
            "name eq 'a' and",
            "name eq 'a' xor name eq 'b'",
            "substringof(name, 'a')",
            "startswith(name, 'a')",
            "(name eq 'a'",
            "tagName ne 'a'",
            "name eq 'a')",
            "substringof('a', location)",
            deep.as_str(),
        ] {
            assert_eq!(read(filter), None, "{filter}");
        }
    }
}

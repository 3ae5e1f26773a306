//! Lists, page by page.

use std::{borrow::Cow, fmt};

use lazuli_model::{
    AzureTime,
    fault::{Effect, Fault},
};
use lazuli_quota::permit::Priority;
use serde::{
    Deserialize,
    de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::{Arm, date, malformed};
use crate::{
    broker::Fields,
    error::{ArmError, Failure, Verb},
    metrics::ResourceType,
    permits::Rank,
    until::Until,
};

/// A list that was read to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    /// What it lists.
    pub items: Vec<T>,
    /// When the request for its first page was sent.
    pub sent_at: Instant,
}

/// A list that is read page by page. The caller may stop after any page.
#[derive(Debug)]
pub struct Pages {
    arm: Arm,
    path: String,
    /// The next page; `None` after the last.
    next: Option<Url>,
    rank: Rank,
    until: Until,
    read: usize,
    sent_at: Option<Instant>,
    answered: Option<AzureTime>,
}

/// The most pages that a list may have; a longer one does not end.
const MOST_PAGES: usize = 10_000;

/// One page of a list.
#[derive(Deserialize)]
struct Page<T> {
    value: Option<Vec<T>>,
    #[serde(rename = "nextLink")]
    next_link: Option<String>,
}

/// A page of which only these members of each item are read.
struct PageOf(Fields);

impl<'de> DeserializeSeed<'de> for PageOf {
    type Value = Page<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageOf {
    type Value = Page<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut page = Page { value: None, next_link: None };
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match &*name {
                "value" => {
                    page.value = match map.next_value_seed(self.0)? {
                        Value::Array(items) => Some(items),
                        _ => None,
                    };
                }
                "nextLink" => page.next_link = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(page)
    }
}

impl Pages {
    /// Reads the next page, decoded into as much of each item as `T` names. `None` after the last page.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::Malformed`] for an item that cannot be read, for a page without `value`, or for a link
    /// that leads elsewhere or in a circle. After an error the page may be asked for again.
    pub async fn next_page<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, ArmError> {
        self.next_by(|body| serde_json::from_slice(body)).await
    }

    /// As [`Pages::next_page`], with the members of each item that are in use.
    pub(crate) async fn next_of(&mut self, fields: Fields) -> Result<Option<Vec<Value>>, ArmError> {
        self.next_by(|body| {
            let mut body = serde_json::Deserializer::from_slice(body);
            let page = PageOf(fields).deserialize(&mut body)?;
            body.end().map(|()| page)
        })
        .await
    }

    /// Whether a page follows the last that was read.
    pub(crate) fn has_more(&self) -> bool {
        self.next.is_some()
    }

    async fn next_by<T>(
        &mut self,
        decode: impl FnOnce(&[u8]) -> Result<Page<T>, serde_json::Error>,
    ) -> Result<Option<Vec<T>>, ArmError> {
        let Some(url) = &self.next else { return Ok(None) };
        if self.read == MOST_PAGES {
            let message = "the list does not end";
            return Err(Failure::ours(Fault::Malformed, Effect::None, Verb::Get, &self.path, message).into());
        }
        let answer = self.arm.read(url, self.rank.clone(), &self.until).await?;
        self.arm.0.metrics.list_page(ResourceType::of(&self.path));
        let wrong = |message: &str| malformed(url, &answer, message);
        let page = match answer.text() {
            None => Page { value: None, next_link: None },
            Some(text) => decode(text).map_err(|error| wrong("a page of the list cannot be read").caused_by(error))?,
        };
        let items = page.value.ok_or_else(|| wrong("a page of the list has no value"))?;
        let next = match page.next_link.as_deref() {
            None | Some("") => None,
            Some(link) => {
                let next = self.arm.follow(url, link);
                Some(
                    next.map_err(|foreign| wrong("a list goes on in a place that is not followed").caused_by(foreign))?,
                )
            }
        };
        if next.as_ref() == Some(url) {
            return Err(wrong("a page of the list names itself as the next").into());
        }
        self.next = next;
        self.read += 1;
        if self.sent_at.is_none() {
            self.sent_at = Some(answer.sent_at);
            self.answered = date(&answer.headers).map(AzureTime::from_unix_seconds);
        }
        Ok(Some(items))
    }

    /// When the request for the first page was sent; `None` before its answer.
    pub fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// The `Date` of the first page.
    pub fn answered(&self) -> Option<AzureTime> {
        self.answered
    }
}

impl Arm {
    /// A list to be read page by page, all within this time.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for what is no path.
    pub fn pages(
        &self,
        path: &str,
        api_version: &str,
        query: &[(&str, &str)],
        rank: impl Into<Rank>,
        until: &Until,
    ) -> Result<Pages, ArmError> {
        let url = self.url(Verb::Get, path, api_version, query)?;
        Ok(Pages {
            arm: self.clone(),
            path: path.to_owned(),
            next: Some(url),
            rank: rank.into(),
            until: until.clone(),
            read: 0,
            sent_at: None,
            answered: None,
        })
    }

    /// Reads all pages of a list, each item into as much of it as `T` names. A page that fails fails the list: a shorter
    /// list would be a wrong one.
    ///
    /// # Errors
    /// As [`Pages::next_page`].
    pub async fn list_of<T: DeserializeOwned>(
        &self,
        path: &str,
        api_version: &str,
        query: &[(&str, &str)],
        until: &Until,
    ) -> Result<Listed<T>, ArmError> {
        let mut pages = self.pages(path, api_version, query, Priority::List, until)?;
        let mut items = Vec::new();
        while let Some(page) = pages.next_page().await? {
            items.extend(page);
        }
        Ok(Listed { items, sent_at: pages.sent_at().unwrap_or_else(Instant::now) })
    }
}

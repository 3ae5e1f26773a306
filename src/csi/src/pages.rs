//! Pages of ListVolumes and ListSnapshots.
//!
//! A list that does not fit into one page is kept, and a token names the list and the place in it: later pages tell what was
//! so when the first one was read, whatever happens to the volumes meanwhile. Lists are few and do not stay: one goes with its
//! last page, after [`KEPT_FOR`] without a page, when [`MOST_LISTS`] newer ones are kept, and with the process. A token of a
//! list that is gone is ABORTED, and the caller starts anew (source: the CSI specification, ListVolumes and ListSnapshots,
//! "invalid starting_token").

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use csi_proto::csi::{ListVolumesResponse, Volume, list_volumes_response};
use lazuli_disk::ListedVolume;
use lazuli_model::fault::Code;
use lazuli_storage::list::Page;
use prost::{Message, encoding};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use uuid::Uuid;

use super::{
    server::{failure, status},
    wire::wire_bytes,
};

/// How many lists of a kind are kept. external-attacher reads one list at a time; the others are for other clients that list.
const MOST_LISTS: usize = 4;
/// How long a list is kept without a page of it being read.
const KEPT_FOR: Duration = Duration::from_secs(180);

/// The place in a list where a page starts, as `starting_token` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    list: Uuid,
    /// How many entries the pages before have.
    skip: usize,
}

/// Why a text is no token of this driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("starting_token {0:?} is none that this driver gives; start the list anew, without a token")]
pub(crate) struct TokenError(String);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.list.simple(), self.skip)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let token = || {
            let (list, skip) = text.split_once('.')?;
            Some(Self { list: list.parse().ok()?, skip: skip.parse().ok()? })
        };
        token().ok_or_else(|| TokenError(text.to_owned()))
    }
}

/// What a list is of.
pub(crate) trait Listed: fmt::Debug + Send + Sync + Sized + 'static {
    /// An entry of the answer.
    type Entry: Message;
    /// The answer.
    type Response;

    /// The entry of one of them.
    fn entry(&self) -> Self::Entry;

    /// A page; `next_token` is empty where it is the last.
    fn response(entries: Vec<Self::Entry>, next_token: String) -> Self::Response;
}

/// The lists of which not every page has been read; clones share them.
#[derive(Debug)]
pub(crate) struct Pages<T>(Arc<Mutex<Vec<Kept<T>>>>);

impl<T> Clone for Pages<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[derive(Debug)]
struct Kept<T> {
    id: Uuid,
    list: Arc<[T]>,
    /// Drops the list when its time is over.
    _expiry: AbortOnDropHandle<()>,
}

impl<T: Listed> Pages<T> {
    fn kept(&self) -> MutexGuard<'_, Vec<Kept<T>>> {
        // A panic elsewhere leaves the table whole: every change is a single insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first page of a list that was just read.
    pub(crate) fn first(&self, list: Arc<[T]>, most_entries: usize) -> T::Response {
        self.page(Uuid::new_v4(), list, 0, most_entries)
    }

    /// The page that a token names.
    ///
    /// # Errors
    /// ABORTED when its list is gone.
    pub(crate) fn next(&self, token: &str, most_entries: usize) -> Result<T::Response, Status> {
        let Token { list: id, skip } = token.parse().map_err(|error: TokenError| failure(Code::Aborted, &error))?;
        let list = self.kept().iter().find(|kept| kept.id == id).map(|kept| kept.list.clone());
        match list {
            Some(list) if skip < list.len() => Ok(self.page(id, list, skip, most_entries)),
            _ => {
                let message = format!(
                    "starting_token {token:?} names a list that is not kept any more; start the list anew, without a \
                     token"
                );
                Err(status(Code::Aborted, message))
            }
        }
    }

    /// The page that starts at an entry. The list is kept when more follows, and dropped otherwise.
    fn page(&self, id: Uuid, list: Arc<[T]>, skip: usize, most_entries: usize) -> T::Response {
        let mut page = Page::new(most_entries);
        let fitting = list[skip..].iter().map(T::entry).take_while(|entry| page.takes(encoded_len(entry)));
        let entries: Vec<T::Entry> = fitting.collect();
        let skip = skip + entries.len();
        let next_token = if skip < list.len() {
            self.keep(id, list);
            Token { list: id, skip }.to_string()
        } else {
            self.drop_list(id);
            String::new()
        };
        T::response(entries, next_token)
    }

    /// Keeps a list as the newest, in place of the oldest if need be.
    fn keep(&self, id: Uuid, list: Arc<[T]>) {
        let lists = Arc::downgrade(&self.0);
        let expiry = tokio::spawn(async move {
            sleep(KEPT_FOR).await;
            if let Some(lists) = lists.upgrade().map(Self) {
                lists.drop_list(id);
            }
        });
        let list = Kept { id, list, _expiry: AbortOnDropHandle::new(expiry) };
        let mut kept = self.kept();
        kept.retain(|kept| kept.id != id);
        if kept.len() == MOST_LISTS {
            kept.remove(0);
        }
        kept.push(list);
    }

    fn drop_list(&self, id: Uuid) {
        self.kept().retain(|kept| kept.id != id);
    }
}

impl Listed for ListedVolume {
    type Entry = list_volumes_response::Entry;
    type Response = ListVolumesResponse;

    fn entry(&self) -> Self::Entry {
        list_volumes_response::Entry {
            volume: Some(Volume {
                capacity_bytes: wire_bytes(self.size.bytes()),
                volume_id: self.volume_id.to_string(),
                ..Volume::default()
            }),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: self.nodes.iter().map(ToString::to_string).collect(),
            }),
        }
    }

    fn response(entries: Vec<Self::Entry>, next_token: String) -> Self::Response {
        ListVolumesResponse { entries, next_token }
    }
}

/// How many bytes an entry takes in the message.
fn encoded_len(entry: &impl Message) -> usize {
    let length = entry.encoded_len();
    // Source: csi.proto, ListVolumesResponse.entries and ListSnapshotsResponse.entries.
    const FIELD: u32 = 1;
    encoding::key_len(FIELD) + encoding::encoded_len_varint(length as u64) + length
}

#[cfg(test)]
mod tests {
    use lazuli_disk::VolumeList;
    use lazuli_model::Gib;
    use lazuli_storage::list::PAGE_BYTES;

    use super::*;

    fn volumes(count: usize, name: &str) -> VolumeList {
        let nodes: Vec<Arc<str>> = vec!["node-0".into(), "node-1".into()];
        let volume = |n| ListedVolume {
            volume_id: format!("/{n:06}/{name}").into(),
            size: Gib::new(4),
            nodes: nodes.clone().into(),
        };
        (0..count).map(volume).collect()
    }

    fn ids(page: &ListVolumesResponse) -> Vec<String> {
        page.entries.iter().map(|entry| entry.volume.as_ref().unwrap().volume_id.clone()).collect()
    }

    fn kept(lists: &Pages<ListedVolume>) -> usize {
        lists.kept().len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fits_into_a_page_is_not_kept() {
        let lists = Pages::default();
        for most in [0, 5, 6] {
            let page = lists.first(volumes(5, "v"), most);
            assert_eq!((page.entries.len(), page.next_token.as_str()), (5, ""));
        }
        assert_eq!(lists.first(volumes(0, "v"), 0), ListVolumesResponse::default());
        assert_eq!(kept(&lists), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_leads_through_its_own_list_to_the_end_and_a_page_may_be_read_again() {
        let lists = Pages::default();
        let list = volumes(5, "mine");
        let first = lists.first(list.clone(), 2);
        let other = lists.first(volumes(9, "other"), 3);
        let second = lists.next(&first.next_token, 2).unwrap();
        // The answer was lost.
        assert_eq!(lists.next(&first.next_token, 2).unwrap(), second);
        let last = lists.next(&second.next_token, 2).unwrap();
        assert_eq!(last.next_token, "");
        let all: Vec<String> = list.iter().map(|volume| volume.volume_id.to_string()).collect();
        assert_eq!([ids(&first), ids(&second), ids(&last)].concat(), all);
        // The other is still there, and this one is not.
        assert_eq!(kept(&lists), 1);
        assert_eq!(lists.next(&other.next_token, 0).unwrap().entries.len(), 6);
        assert_eq!(lists.next(&second.next_token, 2).unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(kept(&lists), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_nothing_that_is_kept_is_aborted() {
        let lists = Pages::default();
        let token = lists.first(volumes(5, "v"), 2).next_token;
        let (id, _) = token.split_once('.').unwrap();
        let restarted = Pages::default();
        let foreign = restarted.first(volumes(5, "v"), 2).next_token;
        for wrong in [
            "nonsense",
            "",
            ".",
            &foreign,
            &format!("{id}.5"),
            &format!("{id}.99999999999999999999"),
            &format!("{id}.-1"),
        ] {
            let refusal = lists.next(wrong, 0).unwrap_err();
            assert_eq!(refusal.code(), tonic::Code::Aborted, "{wrong}");
            assert!(refusal.message().contains(&format!("{wrong:?}")), "{}", refusal.message());
        }
        assert_eq!(lists.next(&token, 0).unwrap().entries.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_goes_after_three_minutes_without_a_page() {
        let lists = Pages::default();
        let first = lists.first(volumes(5, "v"), 1);
        sleep(KEPT_FOR - Duration::from_secs(1)).await;
        let second = lists.next(&first.next_token, 1).unwrap();
        sleep(KEPT_FOR - Duration::from_secs(1)).await;
        lists.next(&second.next_token, 1).unwrap();
        sleep(KEPT_FOR + Duration::from_secs(1)).await;
        assert_eq!(kept(&lists), 0);
        assert_eq!(lists.next(&second.next_token, 1).unwrap_err().code(), tonic::Code::Aborted);
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_that_was_not_read_for_longest_makes_room() {
        let lists = Pages::default();
        let begin = || lists.first(volumes(9, "v"), 1).next_token;
        let first: Vec<String> = (0..MOST_LISTS).map(|_| begin()).collect();
        lists.next(&first[0], 1).unwrap();
        begin();
        assert_eq!(kept(&lists), MOST_LISTS);
        assert_eq!(lists.next(&first[1], 1).unwrap_err().code(), tonic::Code::Aborted);
        lists.next(&first[0], 1).unwrap();
        lists.next(&first[2], 1).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_as_large_as_grpc_allows_and_no_larger() {
        let lists = Pages::default();
        let list = volumes(20_000, &"n".repeat(700));
        let mut page = lists.first(list.clone(), 0);
        let (mut count, mut pages) = (0, 0);
        loop {
            pages += 1;
            count += page.entries.len();
            let bytes = page.encoded_len();
            assert!(bytes <= PAGE_BYTES, "{bytes}");
            if page.next_token.is_empty() {
                break;
            }
            // Not one entry more would fit.
            assert!(bytes > PAGE_BYTES - 2048, "{bytes}");
            page = lists.next(&page.next_token, 0).unwrap();
        }
        assert_eq!((count, pages), (20_000, 4));
    }
}

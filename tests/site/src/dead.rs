//! Links of the site's pages that lead to no file or anchor of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use mdbook_driver::errors::Result;

use crate::finding::Finding;
use crate::paths::{beside, files, is_elsewhere};

/// Anchors and links of a page.
#[derive(Debug, Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: BTreeSet<String>,
}

/// Dead links of all pages below a folder, external ones aside.
pub(crate) fn links(site: &Path) -> Result<Vec<Finding>> {
    let mut pages = BTreeMap::new();
    for path in files(site, Path::new(""))? {
        let is_page = path.extension().is_some_and(|end| end == "html");
        let page = if is_page { Some(parse(&fs::read_to_string(site.join(&path))?)) } else { None };
        pages.insert(path, page);
    }
    let mut dead = Vec::new();
    for (path, page) in &pages {
        let links = page.iter().flat_map(|page| &page.links);
        let of_page = links.filter(|link| !is_alive(&pages, path, link));
        dead.extend(of_page.map(|link| Finding::Dead { page: path.clone(), target: link.clone() }));
    }
    Ok(dead)
}

/// Tests if a link of a page leads to a file of the site, and to an anchor of it where it names one.
fn is_alive(pages: &BTreeMap<PathBuf, Option<Page>>, from: &Path, link: &str) -> bool {
    if is_elsewhere(link) {
        return true;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { Some(from.to_owned()) } else { beside(from, path) };
    match target.and_then(|target| pages.get(&target)) {
        Some(Some(page)) => anchor.is_empty() || page.anchors.contains(anchor),
        Some(None) => true,
        None => false,
    }
}

fn parse(html: &str) -> Page {
    let queue = BufferQueue::default();
    queue.push_back(html.into());
    let tokenizer = Tokenizer::new(Reader::default(), TokenizerOpts::default());
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    tokenizer.sink.page.into_inner()
}

/// Collects the attributes that are anchors or links.
#[derive(Default)]
struct Reader {
    page: RefCell<Page>,
}

impl TokenSink for Reader {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let Token::TagToken(tag @ Tag { kind: TagKind::StartTag, .. }) = token else {
            return TokenSinkResult::Continue;
        };
        let mut page = self.page.borrow_mut();
        for attribute in tag.attrs {
            let value = attribute.value.to_string();
            match &*attribute.name.local {
                "id" => page.anchors.insert(value),
                "href" | "src" => page.links.insert(value),
                _ => continue,
            };
        }
        match &*tag.name {
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            "style" => TokenSinkResult::RawData(RawKind::Rawtext),
            _ => TokenSinkResult::Continue,
        }
    }
}

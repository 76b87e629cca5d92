//! Elements of the page, with the one place at which text is escaped.
//!
//! Names of tags and attributes are constants of the program, so text can become neither. The same tree is written
//! as HTML for the page and as JSON for the script, which makes it of elements and text nodes.

use std::fmt::{self, Write};

use serde_json::{Value, json};

/// An element with attributes and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    tag: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Vec<Content>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Element(Element),
}

/// Tags that HTML closes by themselves and that have no content.
const VOID: [&str; 1] = ["br"];

/// An empty element with this tag.
pub(crate) fn element(tag: &'static str) -> Element {
    Element { tag, attributes: Vec::new(), content: Vec::new() }
}

impl Element {
    /// Sets an attribute, which has no value yet.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Sets the class names.
    #[must_use]
    pub(crate) fn class(self, names: impl fmt::Display) -> Self {
        self.with("class", names)
    }

    /// Appends text, which is escaped when it is written.
    #[must_use]
    pub(crate) fn text(mut self, text: impl fmt::Display) -> Self {
        self.content.push(Content::Text(text.to_string()));
        self
    }

    /// Appends an element to the content.
    #[must_use]
    pub(crate) fn add(mut self, child: Self) -> Self {
        self.content.push(Content::Element(child));
        self
    }

    /// Appends elements in their order.
    #[must_use]
    pub(crate) fn all(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.content.extend(children.into_iter().map(Content::Element));
        self
    }

    /// Form for the script: `[tag, {attributes}, content...]`, where text is a string.
    pub(crate) fn json(&self) -> Value {
        let attributes = self.attributes.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let mut parts = vec![json!(self.tag), Value::Object(attributes.collect())];
        parts.extend(self.content.iter().map(|content| match content {
            Content::Text(text) => json!(text),
            Content::Element(element) => element.json(),
        }));
        Value::Array(parts)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.tag)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}=\"")?;
            escaped(value, f)?;
            f.write_char('"')?;
        }
        f.write_char('>')?;
        if VOID.contains(&self.tag) {
            return Ok(());
        }
        for content in &self.content {
            match content {
                Content::Text(text) => escaped(text, f)?,
                Content::Element(element) => element.fmt(f)?,
            }
        }
        write!(f, "</{}>", self.tag)
    }
}

/// Writes text as HTML's text or attribute value.
fn escaped(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text.chars().try_for_each(|letter| match letter {
        '&' => f.write_str("&amp;"),
        '<' => f.write_str("&lt;"),
        '>' => f.write_str("&gt;"),
        '"' => f.write_str("&quot;"),
        '\'' => f.write_str("&#39;"),
        letter => f.write_char(letter),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn markup_in_text_and_attributes_stays_text() {
        let hostile = "<script>alert('1')</script>\" onload=x&amp;";
        let html = element("p").with("title", hostile).text(hostile).add(element("br")).to_string();
        let escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=x&amp;amp;";
        assert_eq!(html, format!("<p title=\"{escaped}\">{escaped}<br></p>"));
    }

    #[test]
    fn json_has_the_same_tree() {
        let tree = element("p").class("a").text("<b>").add(element("i").text("x"));
        assert_eq!(tree.json(), json!(["p", { "class": "a" }, "<b>", ["i", {}, "x"]]));
    }

    proptest! {
        #[test]
        fn no_text_opens_an_element(text: String) {
            let html = element("p").with("title", &text).text(&text).to_string();
            prop_assert_eq!(html.matches('<').count(), 2);
            prop_assert_eq!(html.matches('>').count(), 2);
            prop_assert_eq!(html.matches('"').count(), 2);
        }
    }
}

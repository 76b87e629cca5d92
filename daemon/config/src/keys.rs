//! The keys that a file may have, as the types that it is read into know them.

use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// How alike two keys must be for one to be taken for the other misspelt: 1 is the same.
const ALIKE: f64 = 0.75;

/// The keys of a file and of the tables in it.
#[derive(Clone, Debug)]
pub struct Keys {
    top: &'static [&'static str],
    tables: Vec<(&'static str, &'static [&'static str])>,
}

impl Keys {
    /// The keys of the file itself. `T` is a struct that reads itself by the names of its fields.
    pub fn of<T: for<'de> Deserialize<'de>>() -> Self {
        Self { top: fields::<T>(), tables: Vec::new() }
    }

    /// And those of a table, or of each of several, under a key of the file.
    #[must_use]
    pub fn and<T: for<'de> Deserialize<'de>>(mut self, table: &'static str) -> Self {
        self.tables.push((table, fields::<T>()));
        self
    }

    /// The key, and the one that was probably meant. `path` is such as `shelf.0.widht`.
    pub(crate) fn hint(&self, path: &str) -> String {
        let table = path.split_once('.').map(|(table, _)| table);
        let its = table.and_then(|table| self.tables.iter().find(|(name, _)| *name == table));
        let known = its.map_or(self.top, |(_, keys)| keys);
        let key = path.rsplit('.').next().unwrap_or(path);
        let likeness = |known: &str| strsim::jaro_winkler(key, known);
        match known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))) {
            Some(nearest) if likeness(nearest) > ALIKE => format!("`{path}` (did you mean `{nearest}`?)"),
            _ => format!("`{path}` (known are {})", known.join(", ")),
        }
    }
}

/// What a struct calls its fields when it is read.
fn fields<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    let read = T::deserialize(Overhear(&mut fields));
    debug_assert!(read.is_err(), "nothing can be read from somebody who only listens");
    fields
}

/// Hears which fields are asked for, and has none.
struct Overhear<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Overhear<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("it is no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("only its fields were asked for"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

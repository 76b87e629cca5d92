//! Known keys of a file, taken from the types that it is parsed into.

use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// Minimum similarity for suggesting a key; 1 means equal.
const ALIKE: f64 = 0.75;

/// Keys of a file and of its tables.
#[derive(Clone, Debug)]
pub struct Keys {
    top: &'static [&'static str],
    tables: Vec<(&'static str, &'static [&'static str])>,
}

impl Keys {
    /// Keys of the file itself: the fields of `T`, a struct that deserialises by field names.
    pub fn of<T: for<'de> Deserialize<'de>>() -> Self {
        Self { top: fields::<T>(), tables: Vec::new() }
    }

    /// Adds the keys of a table, or of each of several, under a key of the file.
    #[must_use]
    pub fn and<T: for<'de> Deserialize<'de>>(mut self, table: &'static str) -> Self {
        self.tables.push((table, fields::<T>()));
        self
    }

    /// Message with the unknown key and the most similar known one. `path` has the form `shelf.0.widht`.
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

/// Field names with which a struct deserialises.
fn fields<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    let read = T::deserialize(Overhear(&mut fields));
    debug_assert!(read.is_err(), "a reader that only notes keys yields no value");
    fields
}

/// A deserialiser that records the requested fields and fails.
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

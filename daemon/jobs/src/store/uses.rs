//! Entries of the account of GPU use.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};

use crate::account::{EntryId, GpuHolder, UseSum};

/// Sums of GPU use by hour since the Unix epoch and holder.
const USES: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("uses");

/// Maximum number of entries; the oldest are dropped.
const MOST_USES: u64 = 1_000_000;

/// Adds amounts to entries.
pub(super) fn add(
    transaction: &WriteTransaction,
    sums: &BTreeMap<EntryId, UseSum>,
) -> Result<(), redb::Error> {
    let mut uses = transaction.open_table(USES)?;
    for ((hour, holder), more) in sums {
        let (Ok(holder), mut sum) = (serde_json::to_vec(holder), more.clone()) else { continue };
        let key = (*hour, holder.as_slice());
        // An entry of another form, by another release, counts as none.
        let known = uses.get(key)?.and_then(|known| serde_json::from_slice::<UseSum>(known.value()).ok());
        known.iter().for_each(|known| sum.add(known));
        let Ok(text) = serde_json::to_vec(&sum) else { continue };
        uses.insert(key, text.as_slice())?;
    }
    while uses.len()? > MOST_USES {
        uses.pop_first()?;
    }
    Ok(())
}

/// The account at one moment.
pub(crate) struct SavedUses(pub(super) ReadTransaction);

impl SavedUses {
    /// Passes on the readable entries of these hours since the Unix epoch, until one is refused.
    pub(crate) fn each(
        &self,
        hours: &RangeInclusive<u64>,
        mut take: impl FnMut(u64, GpuHolder, UseSum) -> bool,
    ) -> Result<(), redb::Error> {
        let (first, end) = (*hours.start(), hours.end().saturating_add(1));
        let nobody: &[u8] = &[];
        for row in self.0.open_table(USES)?.range((first, nobody)..(end, nobody))? {
            let (key, text) = row?;
            let (hour, holder) = key.value();
            if let (Ok(holder), Ok(sum)) =
                (serde_json::from_slice(holder), serde_json::from_slice(text.value()))
                && !take(hour, holder, sum)
            {
                break;
            }
        }
        Ok(())
    }
}

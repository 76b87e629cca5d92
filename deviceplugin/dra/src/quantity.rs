//! Quantities of the API's objects.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tranche_adapter::quantity;

/// Value of a quantity. `None` if it is negative, no whole number, above `u64::MAX`, or malformed.
pub(crate) fn whole(quantity: &Quantity) -> Option<u64> {
    quantity::whole(&quantity.0)
}

/// Bytes as a quantity, in MiB where they are whole ones.
pub(crate) fn of_bytes(bytes: u64) -> Quantity {
    if bytes > 0 && bytes.is_multiple_of(1 << 20) {
        Quantity(format!("{}Mi", bytes >> 20))
    } else {
        of(bytes)
    }
}

/// A number as a quantity.
pub(crate) fn of(number: u64) -> Quantity {
    Quantity(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_number_is_read_back(number in 0..=999_999_999_999_999_999u64) {
            prop_assert_eq!(whole(&of(number)), Some(number));
            prop_assert_eq!(whole(&of_bytes(number)), Some(number));
        }
    }
}

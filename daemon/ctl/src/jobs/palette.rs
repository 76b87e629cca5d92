//! Colours that the charts of history and report share.

/// Palette for colour-blind readers by Okabe and Ito, https://jfly.uni-koeln.de/color/
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

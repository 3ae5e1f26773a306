//! How large a disk is made.

use lazuli_model::{Gib, SkuName, disk_spec::CopySize, parameter::ParameterError};

use super::{Copied, CopiedFrom, Request};
use crate::sku;

/// How much larger than the claim the source of a copy may be (source: the Go driver). external-provisioner refuses a claim
/// that is smaller than its source in whole GiB, so the difference is what Azure rounds, and rarely more.
const MOST_ABOVE_CLAIM: Gib = Gib::new(50);

/// How large a disk is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// What is asked for, rounded up to what the kind of disk needs: the size of an empty disk.
    pub(super) asked: Gib,
    /// The size that the disk has then, in whole GiB: a copy that leaves its size to its source may be larger.
    pub(super) size: Gib,
    /// Whether the body says the size.
    pub(super) copy: CopySize,
}

/// The size of the disk: what is required, rounded up, not below what the kind of disk needs, and not below its source.
pub(super) fn size(
    request: &Request,
    sku_name: SkuName,
    performance_plus: bool,
    copied: Option<&Copied>,
    warnings: &mut Vec<String>,
) -> Result<Size, ParameterError> {
    let (required, limit) = (request.required_bytes, request.limit_bytes);
    for (parameter, value) in [("required_bytes", required), ("limit_bytes", limit)] {
        if value < 0 {
            return Err(ParameterError::invalid(parameter, value, "allowed is no negative number of bytes"));
        }
    }
    let sizes = sku::size_range(sku_name);
    let too_large = || {
        ParameterError::out_of_range(
            "required_bytes",
            required,
            format!("the largest {sku_name} disk has {}", sizes.end()),
        )
    };
    let claimed = Gib::holding(required.unsigned_abs()).ok_or_else(too_large)?.max(Gib::new(1));
    let mut asked = claimed.max(*sizes.start());
    if performance_plus {
        asked = asked.max(sku::PERFORMANCE_PLUS_MINIMUM);
    }
    if asked > *sizes.end() {
        return Err(too_large());
    }
    let of_kind = asked;
    // Azure makes a larger disk of a blob too, and then of a whole number of GiB.
    if let Some(Copied { from: CopiedFrom::Blob(_), bytes: Some(bytes), .. }) = copied
        && *bytes > asked.bytes()
    {
        asked = of_source(*bytes, required, asked)?;
        if asked > *sizes.end() {
            return Err(too_large());
        }
    }
    let (size, bytes, copy) = match copied.and_then(|copied| copied.bytes) {
        Some(bytes) if bytes > asked.bytes() => {
            let content = of_source(bytes, required, asked)?;
            if content > *sizes.end() {
                return Err(too_large());
            }
            (content, bytes, CopySize::OfSource)
        }
        _ => (asked, asked.bytes(), CopySize::Given),
    };
    if limit > 0 && bytes > limit.unsigned_abs() {
        let of = match copy {
            CopySize::Given => format!("the smallest {sku_name} disk for the {required} bytes required"),
            CopySize::OfSource => "a copy of the source".to_owned(),
        };
        return Err(ParameterError::out_of_range("limit_bytes", limit, format!("{of} has {size} ({bytes} bytes)")));
    }
    if asked > claimed && required > 0 {
        let reason = if asked > of_kind {
            "a disk of the blob"
        } else if performance_plus {
            "a disk with enablePerformancePlus"
        } else {
            sku_name.as_str()
        };
        warnings.push(format!("the disk is made with {asked} instead of {claimed}, the least for {reason}"));
    }
    Ok(Size { asked, size, copy })
}

/// The size of a copy that is as large as its source, which is larger than what is asked for.
fn of_source(bytes: u64, required: i64, asked: Gib) -> Result<Gib, ParameterError> {
    let refuse = |content: String| {
        ParameterError::out_of_range(
            "required_bytes",
            required,
            format!("the source has {content} ({bytes} bytes); allowed is at least that"),
        )
    };
    let content = Gib::holding(bytes).ok_or_else(|| refuse("more than any disk".to_owned()))?;
    let above = content.get().saturating_sub(asked.get());
    if required > 0 && above > MOST_ABOVE_CLAIM.get() { Err(refuse(content.to_string())) } else { Ok(content) }
}

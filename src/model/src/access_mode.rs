//! How a volume may be used, and by how many nodes.

/// CSI's access modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessMode {
    /// `UNKNOWN`, or a mode that is newer than this list.
    Unknown,
    /// `SINGLE_NODE_WRITER`
    SingleNodeWriter,
    /// `SINGLE_NODE_READER_ONLY`
    SingleNodeReaderOnly,
    /// `SINGLE_NODE_SINGLE_WRITER`
    SingleNodeSingleWriter,
    /// `SINGLE_NODE_MULTI_WRITER`
    SingleNodeMultiWriter,
    /// `MULTI_NODE_READER_ONLY`
    MultiNodeReaderOnly,
    /// `MULTI_NODE_SINGLE_WRITER`
    MultiNodeSingleWriter,
    /// `MULTI_NODE_MULTI_WRITER`
    MultiNodeMultiWriter,
}

impl AccessMode {
    /// Every mode.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::SingleNodeWriter,
        Self::SingleNodeReaderOnly,
        Self::SingleNodeSingleWriter,
        Self::SingleNodeMultiWriter,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
    ];

    /// CSI's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::SingleNodeWriter => "SINGLE_NODE_WRITER",
            Self::SingleNodeReaderOnly => "SINGLE_NODE_READER_ONLY",
            Self::SingleNodeSingleWriter => "SINGLE_NODE_SINGLE_WRITER",
            Self::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
            Self::MultiNodeReaderOnly => "MULTI_NODE_READER_ONLY",
            Self::MultiNodeSingleWriter => "MULTI_NODE_SINGLE_WRITER",
            Self::MultiNodeMultiWriter => "MULTI_NODE_MULTI_WRITER",
        }
    }

    /// Whether more than one node may hold the volume.
    pub fn is_multi_node(self) -> bool {
        matches!(self, Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter)
    }

    /// Whether the mode forbids writing.
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }
}

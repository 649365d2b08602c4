//! Pools in heap memory with a recorder.

use std::path::PathBuf;

use super::*;
use crate::header_writes::{first_header, write_first_header};
use crate::planted;
use crate::region::Mapping;
use crate::sim::{Recorder, SimImage, SimSpec};
use crate::simulated::Observer;

fn policy(spec: &SimSpec, opts: &PoolOptions) -> Result<Persist> {
    if spec.stores_persist {
        return Ok(Persist::Nothing);
    }
    // A simulated medium loses unflushed data, so `process` on it flushes too.
    let asked = if opts.durability == Durability::Process { Durability::Power } else { opts.durability };
    probe::policy(&Medium::simulated(), asked, false)
}

fn heap(len: u64, image: Option<&[u8]>, place: &str) -> Result<Arc<Mapping>> {
    let mapping = Mapping::of_heap(len, image);
    mapping.map(Arc::new).ok_or_else(|| Error::corrupt(place, format!("a region cannot have {len} bytes")))
}

impl Pool {
    /// Creates a pool in simulated memory. Its stores, from the first header on, go to a recorder
    /// ([`Pool::recorder`]).
    ///
    /// # Errors
    /// Like [`Pool::create`].
    pub fn create_sim(
        spec: &SimSpec,
        engine: &str,
        engine_format: u32,
        opts: PoolOptions,
    ) -> Result<(Arc<Self>, OpenReport)> {
        Self::create_sim_on(Recorder::new(spec), spec, engine, engine_format, opts)
    }

    /// Like [`Self::create_sim`], with a recorder that other pools may share ([`Recorder::at`]).
    ///
    /// # Errors
    /// Like [`Pool::create`].
    pub fn create_sim_on(
        recorder: Recorder,
        spec: &SimSpec,
        engine: &str,
        engine_format: u32,
        mut opts: PoolOptions,
    ) -> Result<(Arc<Self>, OpenReport)> {
        opts.check(engine)?;
        opts.limit_first_region(recorder.medium_bytes());
        let mut memory = memory_for(policy(spec, &opts)?, &opts)?;
        let len = opts.first_region_bytes();
        recorder.region_added(0, len);
        memory.regions.add(heap(len, None, "a simulated region")?);
        let mut pool_id = *b"simulated pool 0";
        pool_id[..2].copy_from_slice(&recorder.first().to_le_bytes());
        memory.observer = Observer::new(recorder);
        let ids = (pool_id, memory.boot_id());
        let header = first_header(engine, engine_format, &opts, ids);
        let header = write_first_header(&memory, header);
        let pool = Self::assemble(sim_parts(memory, opts, header))?;
        pool.begin_new()?;
        Ok((pool, OpenReport::of_new(engine, engine_format)))
    }

    /// Returns [`Pool::opening`] at the last header change of the pool whose region 0 is at `first`
    /// in the image.
    pub fn opening_in_image(image: &SimImage, first: u16) -> Option<u64> {
        let region0 = image.regions.get(usize::from(first))?;
        PoolHeader::newest(region0, "region 0", false).ok().map(|header| header.sequence)
    }

    /// Opens a pool from a crash image. Its own stores go to a new recorder, so that a crash inside
    /// recovery can be explored.
    ///
    /// # Errors
    /// Like [`Pool::open`]; [`Error::Missing`] if the crash came before the creation was complete.
    pub fn open_sim(
        image: &SimImage,
        engine: &str,
        engine_format: u32,
        opts: PoolOptions,
    ) -> Result<(Arc<Self>, OpenReport)> {
        Self::open_sim_on(Recorder::of_image(image), image, engine, engine_format, opts)
    }

    /// Like [`Self::open_sim`], with a recorder that other pools may share: the pool begins at the
    /// recorder's first region in `image`.
    ///
    /// # Errors
    /// Like [`Self::open_sim`].
    pub fn open_sim_on(
        recorder: Recorder,
        image: &SimImage,
        engine: &str,
        engine_format: u32,
        opts: PoolOptions,
    ) -> Result<(Arc<Self>, OpenReport)> {
        let regions = image.regions.get(usize::from(recorder.first())..).unwrap_or_default();
        let region0 = regions.first().map_or(&[][..], Vec::as_slice);
        if !PoolHeader::was_finished(region0) {
            return Err(Error::missing("a simulated pool"));
        }
        let header = PoolHeader::newest(region0, "region 0", recorder.has_fault(planted::HEADER_CHECKSUM_IGNORED))?;
        check_engine(&header, engine, engine_format)?;
        let opts = options_in_force(opts, &header)?;
        let report = report_of(&header, boot::SIMULATED);
        let mut memory = memory_for(policy(&image.spec, &opts)?, &opts)?;
        let mut opening = Opening::of(&header, "region 0", &opts)?;
        for index in 0..header.regions as u16 {
            let place = format!("region {index}");
            let missing = || Error::corrupt(&place, "this region is missing");
            let bytes = regions.get(usize::from(index)).ok_or_else(missing)?;
            let len = bytes.len() as u64;
            if index == 0 && len != header.region0_bytes {
                return Err(Error::corrupt(
                    place,
                    format!(
                        "the file has {len} bytes, and it was created with {}: restore all files from one copy",
                        header.region0_bytes
                    ),
                ));
            }
            if index > 0 {
                let copies = HeaderCopies::of_region(bytes);
                opening.add_region(RegionHeader::check(copies, &place, &header, index, len)?, &opts)?;
            }
            memory.regions.add(heap(len, Some(bytes), &place)?);
        }
        check_unnamed_region(regions, &header)?;
        memory.observer = Observer::new(recorder);
        let report = OpenReport { settled: report.clean || memory.sync_all(), ..report };
        let pool = Self::assemble(sim_parts(memory, opts, header))?;
        pool.begin_opened(opening)?;
        Ok((pool, report))
    }
}

/// Refuses a region that the header does not count and that is more than an interrupted growth, as
/// the open of a directory does. Pools that share a recorder cannot grow.
fn check_unnamed_region(regions: &[Vec<u8>], header: &PoolHeader) -> Result<()> {
    let can_grow = header.capacity > header.region0_bytes;
    let Some(region) = regions.get(header.regions as usize).filter(|_| can_grow) else { return Ok(()) };
    let begins = &region[..region.len().min(files::EXAMINED_BYTES)];
    let path = PathBuf::from(format!("region {}", header.regions));
    super::check_unnamed_region(header, begins, region.len() as u64, "region 0", path)
}

fn sim_parts(memory: Memory, opts: PoolOptions, header: PoolHeader) -> PoolParts {
    PoolParts { memory, opts, medium: Medium::simulated(), dir: None, background: None, header, lock: None }
}

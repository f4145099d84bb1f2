# SPDX-License-Identifier: Apache-2.0
"""The changes that bench/mutants.py plants, each in code that carries data or keys, and the tests that have to notice it.

`find` stands exactly once in `file`; `replace` is put in its place. `tests` is a filter of GoogleTest for `program`, as narrow as can be: it
says who notices the change, not who might. `lives` is the reason why no test here can notice it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    component: str
    file: str
    find: str
    replace: str
    program: str
    tests: str
    lives: str = ""


def of(component, file, program):
    """The mutants of one file: rows of name, find, replace, tests, and a reason where it may live."""
    return lambda *rows: [Mutant(row[0], component, file, row[1], row[2], program, *row[3:]) for row in rows]


MUTANTS = [
    # --- The engine: which way, what is said, what is let in -----------------------------------------------------------------------
    *of("engine", "src/fabric/choose.cpp", "fabric_conformance")(
        ("choose_peers_eager_limit", "std::min<std::uint64_t>(settings_.eager_bytes, peer.peer_eager_bytes)", "settings_.eager_bytes", "*FabricLimitsOfTwo.*"),
        ("choose_forbidden_path", "return preference_for(policy, candidate.path) != Preference::forbid;", "return true;", "*FabricForbidden.*"),
        ("choose_required_path", "return candidate.path == *required;", "return true;", "*FabricPaths.PoliciesAreKept/*"),
        ("choose_eager_limit_exact", "is_write && bytes <= eager_bytes && !is_alone", "is_write && bytes < eager_bytes && !is_alone", "*FabricLimitsExact.*"),
    ),
    *of("engine", "src/fabric/collectives.cpp", "fabric_conformance")(
        ("collectives_mismatch_unchecked", "if (found->second.front() != signature_ || part.size() != collective_.values.size()) {", "if (false) {", "TwoRanks/FabricDisagreement.*"),
        ("collectives_values_of_another_length", " || part.size() != collective_.values.size()", "", "TwoRanks/FabricDisagreement.*"),
        ("collectives_nobody_waits_for_the_parent", "if (!take(parent_->rank, kDown, part)) return is_someone_lost();", "return true;", "FourRanks/FabricCollectivesLate.*"),
        ("collectives_maximum_is_minimum", "left = std::max(left, right);", "left = std::min(left, right);", "*FabricCollectives.Reductions*/local_host_host_2"),
    ),
    *of("engine", "src/fabric/collectives.cpp", "fabric_fault")(
        ("collectives_parts_of_any_length", "if (payload.size() > std::size_t{8} * kMaxReduceElements)", "if (false)", "*FabricInsider.*/long_part_of_a_collective"),
    ),
    *of("engine", "src/fabric/messages.cpp", "fabric_conformance")(
        ("messages_peers_eager_limit", "{settings_.eager_bytes, (*peer)->peer_eager_bytes, (*peer)->rails", "{settings_.eager_bytes, (*peer)->rails", "*FabricLimitsOfTwo.*"),
        ("messages_mask_ignored", "(receive.from == kAnyRank || receive.from == peer.rank) && ((receive.tag ^ tag) & receive.mask) == 0", "(receive.from == kAnyRank || receive.from == peer.rank) && receive.tag == tag", "*FabricWaitingReceives.*"),
        ("messages_from_anybody", "return (receive.from == kAnyRank || receive.from == peer.rank) &&", "return", "*FabricWaitingReceives.*"),
        ("messages_cut_in_silence", "if (data.size() > receive.capacity) receive.fail(truncated(peer, data.size(), receive.capacity));", "", "*FabricLongMessages.*"),
        ("messages_newest_first", "unexpected_.push_back({&peer, peer.generation, message.a, payload.size(), ", "unexpected_.push_front({&peer, peer.generation, message.a, payload.size(), ", "*FabricMessageOrder.*"),
    ),
    *of("engine", "src/fabric/messages.cpp", "fabric_fault")(
        ("messages_window_unchecked", "if (peer.unexpected_bytes + cost_of(payload.size()) > kEagerWindowBytes)\n", "if (false)\n", "*FabricInsider.*/empty_messages"),
        ("messages_acceptance_of_another_length", "if (reader.is_done() && message.c == op.bytes) {", "if (reader.is_done()) {", "FabricReply.*"),
        ("messages_requests_unbounded", "if (peer.unexpected_request_count >= kMaxMessages) return", "if (false) return", "*FabricInsider.*/offers"),
    ),
    *of("engine", "src/fabric/state.hpp", "fabric_fault")(
        ("incoming_bounds_unchecked", " &&\n         fits(offset, bytes, segment->memory.bytes())", "", "FabricBounds.*"),
        ("incoming_old_key_is_good", " && segment->epoch == message.epoch", "", "FabricBounds.*"),
    ),
    *of("engine", "src/fabric/incoming.cpp", "fabric_fault")(
        ("incoming_any_notification", " || message.notification() >= kNotifications", "", "FabricBounds.*"),
        ("incoming_atomic_of_odd_address", " && message.a % 8 == 0) {", ") {", "FabricBounds.*"),
        ("incoming_pong_of_no_ping", "if (message.a > peer.ping_sent) return", "if (false) return", "*FabricInsider.*/pong"),
        ("incoming_refusal_of_no_write", "if (message.queue >= kQueues || (peer.refusable_queues >> message.queue & 1) == 0)\n", "if (message.queue >= kQueues)\n", "*FabricInsider.*/refusal"),
    ),
    *of("engine", "src/fabric/incoming.cpp", "fabric_conformance")(
        ("incoming_notification_overtakes", "if (is_ordered(message.type) && is_late(peer, message))", "if (false)", "*FabricNotificationLoad.*"),
        ("incoming_atomic_adds_one_more", "old = __atomic_fetch_add(word, message.b, __ATOMIC_SEQ_CST);", "old = __atomic_fetch_add(word, message.b + 1, __ATOMIC_SEQ_CST);", "*FabricAtomics.SumsAreExact/*"),
    ),
    *of("engine", "src/fabric/notifications.cpp", "fabric_conformance")(
        ("notification_adding_sets", "if (kind == transport::WordKind::add) {", "if (false) {", "*FabricNotifications.ManyRanksAddToOneCounter/*"),
        ("notification_taken_whole", "const std::uint32_t part = std::min(seen.stored, value);", "const std::uint32_t part = seen.stored;", "*FabricNotificationCount.*"),
    ),
    *of("engine", "src/fabric/outbox.cpp", "fabric_conformance")(
        ("word_overtakes_messages", "if (peer.data_said != peer.data_placed || peer.fence_marks != 0) way = kBehindMessages;", "", "*FabricNotificationPair.ItsWayIsReported/*"),
    ),
    *of("engine", "src/fabric/segments.cpp", "fabric_fault")(
        ("segments_key_without_a_reason", "key.bytes.empty() ? \"the peer has no key for it, and gives no reason\" : shown(key.bytes, kMaxSaidBytes)};", "shown(key.bytes, kMaxSaidBytes)};", "FabricNotifications.WithoutAKey*"),
    ),
    *of("engine", "src/fabric/staged.cpp", "fabric_fault")(
        ("staged_chunk_of_any_length", " && bytes <= found->second.chunk_bytes &&", " &&", "*FabricInsider.*/chunk_too_long"),
        ("staged_chunk_beyond_the_end", "fits(message.c, bytes, found->second.bytes) &&", "message.c <= found->second.bytes &&", "*FabricInsider.*/chunk*"),
        ("staged_chunk_of_any_slot", " &&\n                       peer.in_slots[slot] && bytes != 0", " && bytes != 0", "*FabricInsider.*/chunk_not_granted"),
        ("staged_number_unchecked", "!reader.is_done() || sequence != peer.staged_seen + 1 ||", "!reader.is_done() ||", "*FabricInsider.*/staged_write_out_of_turn"),
        ("staged_end_of_none", "if (peer.staged_under_way.erase(message.c) == 0) return", "if (peer.staged_under_way.erase(message.c) == 7) return", "*FabricInsider.*/staged_end_of_none"),
        ("staged_grant_to_a_message", "if (op.kind != OpKind::write || op.is_placed_by_link ||", "if (op.is_placed_by_link ||", "*FabricInsider.*/grant_to_a_message"),
    ),
    *of("engine", "src/fabric/staged.cpp", "fabric_conformance")(
        ("staged_always_the_first_chunk", "memory.address() + op.local_offset + op.next, bytes)", "memory.address() + op.local_offset, bytes)", "*FabricChunks.OfOneOperationAreToo/ucx_*:*FabricData.WritesEverySize/ucx_stand_in_stand_in_staged_2"),
    ),
    *of("engine", "src/fabric/segments.cpp", "fabric_fault")(
        ("segments_buffer_open_to_all", " || !found->second->is_open_to(peer.rank) ? nullptr", " ? nullptr", "FabricBuffers.AreOpenToTheirSenderOnly"),
        ("segments_key_that_nobody_asked_for", "if (!is_asked || !learn_segment", "if (found == peer.segments.end() || !learn_segment", "*FabricInsider.*/unasked_key",
         "a key for a segment that was asked for before takes the known one's place; no peer can reach other memory by it"),
    ),
    *of("engine", "src/fabric/segments.cpp", "fabric_fault")(
        ("segments_left_while_used", " || remote.users != 0)\n    return false;", ")\n    return false;", "FabricQuiet.*"),
    ),

    # --- Wire-up: who is let in, with which keys -----------------------------------------------------------------------------------
    *of("wire-up", "src/secure/handshake.cpp", "unit_test")(
        ("wireup_exchange_not_in_the_keys", "                .add(shared_.bytes())\n", "", "SecureHandshake.*"),
        ("wireup_challenge_not_in_the_hello", 'hash.add(made_by(role, "hello")).add(challenge_);', 'hash.add(made_by(role, "hello"));', "SecureHandshake.*"),
        ("wireup_answer_to_any_hello", "  if (role == Role::acceptor) hash.add(hellos_.front());\n", "", "SecureHandshake.*"),
        ("wireup_weak_point_is_good", "unsigned_bytes(public_key)) != 0)", "unsigned_bytes(public_key)) == 7)", "SecureHandshake.*"),
        ("wireup_any_proof", "if (!prefix || !is_equal(bytes.substr(kSaidBytes), proof_of(bytes.substr(0, kSaidBytes), other_role()))) return false;", "if (!prefix) return false;", "SecureHandshake.*"),
        ("wireup_verdict_not_in_the_proof", '.add(made_by(role, "proof")).add(message).text();', '.add(made_by(role, "proof")).add(message.substr(kPrefixBytes)).text();', "SecureHandshake.*"),
        ("wireup_one_key_for_both_directions", "add(made_by(role, what)).secret();", "add(made_by(Role::initiator, what)).secret();", "SecureHandshake.*"),
        ("wireup_answer_not_in_the_keys", "                .add(hellos_.back())\n", "", "SecureHandshake.*"),
        ("wireup_fields_not_in_the_hash", "return hash.add(hello.substr(0, kHashOffset)).text();", "return hash.text();", "SecureHandshake.*"),
        ("wireup_proof_of_any_role", 'Hash(master_.bytes()).add(made_by(role, "proof"))', 'Hash(master_.bytes()).add(made_by(Role::initiator, "proof"))', "SecureHandshake.*"),
        ("wireup_exchange_kept", "  private_key_ = Secret();\n", "", "Secret.OfAHandshakeIsWipedWithIt"),
        ("wireup_another_rank_answers", "if (role_ == Role::initiator && from != peer_) return HelloFault::rank;", "", "SecureHandshake.*"),
        ("wireup_any_purpose", "if (purpose != static_cast<std::uint32_t>(identity_.purpose)) return HelloFault::job;", "", "SecureHandshake.*:*EndpointPurposes.*"),
    ),
    *of("wire-up", "src/secure/acceptor.cpp", "unit_test")(
        ("wireup_proven_by_any_proof", "handshake->take_proof(received) ? kProven", "handshake->take_proof(received) || true ? kProven", "*EndpointPurposes.*"),
        ("strangers_without_a_limit", "    if (limit.is_full()) {", "    if (false) {", "WireupStrangers.*"),
        ("strangers_without_a_deadline", "pending_.begin()->second.deadline_ns <= now_ns) {", "pending_.begin()->second.deadline_ns == 7) {", "WireupStrangers.SlowOnesAreDropped"),
        ("wireup_another_user", "if (!credentials.is_of_this_user) return refuse(", "if (false) return refuse(", "WireupForks.AnotherUser*"),
        ("strangers_of_any_source", "return !one.has_hello && silent_counts_.at(one.source) == most;", "return !one.has_hello;", "PendingLimit.*"),
    ),
    *of("wire-up", "src/secure/dial.cpp", "unit_test")(
        ("wireup_listener_with_any_proof", "return handshake_->take_proof(received_) ? judge_proven()", "return handshake_->take_proof(received_) || true ? Progress::connected", "*EndpointPurposes.*"),
        ("wireup_verdict_ignored", "if (handshake_->verdict() == Verdict::proceed) return Progress::connected;", "return Progress::connected;", "EndpointVerdicts.*"),
        ("dial_waits_for_the_silent", "next_at_ns_ = is_first_unix_socket() ? kNever : now_ns_ + hello_ns_;", "next_at_ns_ = kNever;", "Dial.*"),
        ("dial_stays_where_it_is_full", "is_there = is_first_unix_socket() && (step_", "is_there = is_peers_own_socket() && (step_", "Directory.AStranger*"),
        ("dial_knows_one_address", "if (!fresh.empty()) targets_ = std::move(fresh);", "", "Dial.*"),
        ("wireup_refusal_is_final", "if (is_peers_own_socket()) return fail(", "if (true) return fail(", "WireupStrangers.ARefusalOverTcpIsNeverFinal"),
    ),
    *of("wire-up", "src/secure/channel.cpp", "unit_test")(
        ("seal_frames_of_any_length", " || rest_bytes > kHeadBytes + kMaxFrameBytes + kAddedBytes", "", "SecureStream.*"),
        ("seal_end_not_told", "frame.is_last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;", "frame.is_last = false;", "SecureStream.*"),
        ("seal_opens_behind_a_forgery", "    state_ = Secret();\n    return Found::forged;", "    return Found::forged;", "SecureStream.*"),
        ("wireup_any_end_is_orderly", '"its socket closed without a sealed end: its process has ended"', '"it disconnected"', "*EndpointPurposes.*"),
        ("wireup_descriptors_without_a_frame", "if (descriptors_.size() > kMaxFrameDescriptors || (incoming_.empty() && !descriptors_.empty())) {", "if (false) {", "WireupDescriptors.*"),
        ("wireup_frames_after_a_cut", "while (!is_over() && !is_backpressured()) {", "while (!fault_ && !is_backpressured()) {", "*EndpointPurposes.*:HostileInsider.*"),
        ("wireup_queue_without_end", "if (queued_bytes_ + frame.body.size() + kFrameOverheadBytes > limits_.max_queued_bytes)\n", "if (false)\n", "*WireupFrames.*"),
        ("wireup_reads_while_held_back", "while (!is_over() && !is_backpressured()) {", "while (!is_over()) {", "WireupQueue.*"),
    ),
    *of("wire-up", "src/secure/endpoint.cpp", "unit_test")(
        ("wireup_deferred_forgotten", "  cut(rank);\n  deferred_until_ns_ = std::min(deferred_until_ns_, now_ns_);\n", "  cut(rank);\n", "WireupQueue.*"),
        ("wireup_connected_and_not_noted", "guarded(rank, [&] { events.connected(rank, is_same_host, process); });", "events.connected(rank, is_same_host, process);", "*EndpointPurposes.*"),
        ("wireup_drained_and_lost", "guarded(peer, [&] { drain(known->second, false, events); });", "drain(known->second, false, events);", "*EndpointPurposes.*"),
        ("directory_any_count", "if (peer_rank_count != identity_.rank_count) return", "if (peer_rank_count == 0) return", "EndpointVerdicts.*"),
    ),
    *of("tcp", "src/secure/byte_stream.hpp", "unit_test")(
        ("sealed_key_stays", "number_ != 0 && number_ % kRecordsPerKey == 0", "false", "RecordCipher.*"),
    ),
    *of("wire-up", "src/secure/secret.cpp", "unit_test")(
        ("secret_in_a_core", "? sodium_malloc(bytes) : nullptr;", "? ::operator new(bytes) : nullptr;", "Secret.IsInNoCoreDump"),
        ("secret_left_behind", "    sodium_memzero(cell, kCellBytes);\n", "", "Secret.*"),
    ),

    # --- Transports ----------------------------------------------------------------------------------------------------------------
    *of("local", "src/transport/local/link.cpp", "unit_test")(
        ("local_message_overtakes_writes", "return is_held_back() ? keep(header, payload, {}) : produce(header, payload);", "return produce(header, payload);", "LocalRegion.MessagesStayBehindLargeWrites"),
        ("local_word_overtakes_writes", "if (is_held_back()) return keep({}, {}, {word, value, kind, theirs.hold()});", "", "*LocalWords.AreBehindWritesThatAreNotFinished/*"),
        ("local_sleeper_misses_a_word", "if (consumer_.has_message() || words_written() != seen_words_) return false;", "if (consumer_.has_message()) return false;", "*LocalWords.WakeWhoHasArmed/*"),
        ("local_writes_beyond_the_region", "if (!is_inside(transfer.remote_offset, transfer.bytes, remote.bytes()) || !remote.is_registered()) {", "if (!remote.is_registered()) {", "LocalRegion.RangesOutsideAreAnsweredAndNothingMoves"),
        ("local_slices_land_at_one_place", "  transfer.remote_offset += bytes;\n", "", "LocalRegion.*:LocalProcesses.MessagesComeAfterTheWritesBeforeThem"),
        ("local_answer_counts_twice", "if (state_ == LinkState::connecting && is_whole) {", "if (is_whole) {", "LocalOffer.*"),
        ("local_sleeper_is_not_woken", "if ((wish.load(std::memory_order_seq_cst) & what) == 0) return;", "return;", "LocalLink.ArmsOnlyWhenNothingIsPendingAndWakes"),
    ),
    *of("local", "src/transport/local/region.cpp", "unit_test")(
        ("local_key_beyond_its_allocation", "key.bytes > key.allocation_bytes - key.offset_bytes ||", "", "LocalCuda.AKeyThatContradictsItselfIsMalformed"),
        ("local_key_of_another_region", "here_->address != key_.address || here_->bytes != key_.bytes ||", "here_->address != key_.address ||", "LocalKey.*"),
        ("local_descriptors_uncounted", 'if (descriptor_count != (brings_one ? 1 : 0)) return "comes with a wrong number of descriptors";', "", "LocalKey.*"),
    ),
    *of("ucx", "src/transport/ucx/wire.cpp", "unit_ucx")(
        ("ucx_damaged_parcel", "if (sum != fnv1a(summed))", "if (sum == 0)", "UcxHostile.DamagedParcelsAndKeysAreRefused"),
        ("ucx_header_of_another_length", " || parsed.data_bytes != data_bytes) return {};", ") return {};", "UcxHostile.*"),
    ),
    *of("ucx", "src/transport/placing.cpp", "unit_ucx")(
        ("ucx_guard_unchecked", "if (guard == entry.guards.end() || guard->second != place.guard->number) return nullptr;", "", "UcxHostile.*"),
        ("ucx_writes_beyond_the_region", "return place.offset <= entry.bytes && bytes <= entry.bytes - place.offset ? &entry : nullptr;", "return &entry;", "UcxHostile.*"),
    ),
    *of("ucx", "src/transport/ucx/link.cpp", "unit_ucx")(
        ("ucx_repeated_number", "if (header.sequence < expected_ || held_.contains(header.sequence)) return", "if (header.sequence < expected_) return", "UcxHostile.*"),
        ("ucx_answer_that_is_too_long", " && data.size() <= read.missing_bytes && access.offset", " && access.offset", "UcxHostile.*"),
        ("ucx_acknowledges_what_was_not_sent", 'if (units > posted_units_) return refuse("it acknowledged messages that it was never sent");', "", "UcxHostile.*"),
    ),
    *of("tcp", "src/transport/placing.cpp", "unit_test")(
        ("placing_key_of_any_peer", "entry.guards.find(place.guard->rank)", "entry.guards.begin()", "PlacingHome.*"),
        ("placing_key_stays", "found->second.guards.erase(rank) == 0", "true", "PlacingHome.*"),
    ),
    *of("tcp", "src/transport/tcp/lane.cpp", "unit_test")(
        ("tcp_lane_of_any_rank", "place_of(*header, rank_)", "place_of(*header, Rank{0})", "TcpLanes.*"),
    ),
    *of("tcp", "src/transport/tcp/link_receive.cpp", "unit_test")(
        ("tcp_fence_not_awaited", "if (static_cast<std::int32_t>(placed - (*fence_)[lane]) < 0) return false;", "if (false) return false;", "TcpLanes.MessagesAreBehindTheirWrites"),
        ("tcp_fence_of_lanes_that_are_none", "return count != 0; })) {", "return count > 9; })) {", "TcpLanes.WhatIsNotAllowedThereBreaksTheLinkOnly"),
    ),
    *of("tcp", "src/transport/tcp/silence.hpp", "unit_test")(
        ("tcp_slow_reader_is_lost", " && was_asked;", ";", "TcpSilence.*"),
        ("tcp_answers_forgotten", "      retransmissions_ = path.retransmissions;\n", "", "TcpSilence.WhoAnswersRetransmissionsIsThere"),
    ),
    *of("verbs", "src/transport/verbs/wire.cpp", "unit_test")(
        ("verbs_answer_without_a_port", "  if (answer && answer->to.port == 0) answer.reset();\n", "", "VerbsWire.ValuesThatCannotBeAreRefused"),
        ("verbs_key_that_wraps", " && key.address <= UINT64_MAX - key.bytes", "", "VerbsWire.ValuesThatCannotBeAreRefused"),
        ("verbs_tokens_by_their_first_byte", "i < first.size(); ++i) difference", "i < 1; ++i) difference", "VerbsWire.TokensDifferInAnyByte"),
    ),
    *of("verbs", "src/transport/verbs/link.cpp", "unit_verbs")(
        ("verbs_refused_post_costs_a_credit", "  if (posted != Posted::ok) credits_.give_back();\n", "", "VerbsErrors.PostsThatAreRefused"),
    ),
    *of("verbs", "src/transport/verbs/link_words.cpp", "unit_verbs")(
        ("verbs_word_without_a_fence", "    flags |= IBV_SEND_FENCE;\n", "", "VerbsWords.AreNotSeenBefore*"),
        ("verbs_word_forgets_words", "if (!peer_->is_in_order && std::max(ledger_.retired_count(), writes_placed_) < writes_posted_) {", "if (std::max(ledger_.retired_count(), writes_placed_) + 1 < writes_posted_) {", "VerbsWords.AreNotSeenBefore*"),
    ),
    *of("verbs", "src/transport/verbs/rails.cpp", "unit_verbs")(
        ("verbs_farthest_rail_first", "if (options.near_device >= 0 && found.size() > 1) sort_by_distance(found, options);", "", "VerbsRails.*"),
    ),

    # --- Mappings ------------------------------------------------------------------------------------------------------------------
    *of("mapping", "src/mapping/verify.cpp", "unit_test")(
        ("mapping_drops_stores", '    if (seen != nonce) return mismatch(*window, *memory, "a nonce written through it is not in the memory");\n', "", "PlantedLies.*"),
        ("mapping_one_look", "constexpr int kMaxTries = 8;", "constexpr int kMaxTries = 1;", "Verification.*"),
        ("mapping_seven_looks", "constexpr int kMaxTries = 8;", "constexpr int kMaxTries = 7;", "Verification.*"),
        ("mapping_nonce_unchecked", '    if (seen != nonce) return mismatch(window, memory, "a value written by the copy engine is not there");\n', "", "PlantedLies.*"),
        ("mapping_memory_not_restored", "    if (Result<void> done = runtime.engine_copy(memory.device, CopyWay::to_device, {&restore, 1}); !done) return done;\n", "", "Verification.*"),
        ("mapping_last_place_unseen", "  add(past - std::min<std::size_t>(kPlaceBytes, past - begin));\n", "", "PlantedLies.*:Verification.*"),
    ),
    *of("mapping", "src/mapping/mapping.cpp", "unit_test")(
        ("mapping_windows_unverified", "if (Result<void> verified = verify_window(*window, request.memory, request.options.verification); !verified)", "if (Result<void> verified; !verified)", "PlantedLies.*"),
        ("mapping_inherited_are_mixed", "return window.is_inherited == request.options.inherit_on_fork &&\n           (", "return (", "WindowCache.ForkInheritanceIsNotMixed"),
        ("mapping_lie_is_passed_over", "return status == Status::verification_failed;", "return false;", "PlantedLies.*"),
    ),
    *of("mapping", "src/mapping/rm.cpp", "unit_test")(
        ("mapping_identity_of_another_gpu", "if (identity.gpu_id != gpu_id) {", "if (false) {", "Refusals.*:PeerWindow.*"),
        ("mapping_same_handle_is_same_memory", "if (same && *same) known.block = piece->block;", "known.block = piece->block;", "WindowCache.*:SharedWindows.*"),
    ),

    # --- Copies and their calibration ------------------------------------------------------------------------------------------------
    *of("copies", "src/copy/chooser.cpp", "unit_copy")(
        ("calibration_stored_kernels_not_used", "      kernels::use_choice(choice.value());\n      return std::move(loaded).value();", "      return std::move(loaded).value();", "StoredCalibration.*"),
        ("calibration_kernels_not_used", "  kernels::use_choice(choice.value());\n  put_in_use(device, calibration);", "  put_in_use(device, calibration);", "Chooser.*"),
        ("calibration_pageable_decides_alone", "return at.pageable != CopyMethod::cpu || at.pinned != CopyMethod::cpu;", "return at.pageable != CopyMethod::cpu;", "MethodTable.*"),
    ),
    *of("copies", "src/copy/calibration.cpp", "unit_copy")(
        ("calibration_threads_need_not_win", "if (us < best_us * kMustWinBy[index]) {", "if (us < best_us) {", "Choose.*"),
        ("calibration_between_sizes_on_a_line", "return below->median_us[method] * std::pow(us / below->median_us[method], part);", "return below->median_us[method];", "Choose.*"),
    ),
    *of("copies", "src/copy/calibration.cpp", "unit_copy")(
        ("calibration_points_in_any_order", "order(points[i - 1]) >= order(points[i])", "order(points[i - 1]) == order(points[i])", "CalibrationFile.RefusesWrongValuesAndSaysWhere"),
    ),
    *of("copies", "src/copy/calibration_measure.cpp", "unit_copy")(
        ("calibration_wrong_bytes_are_measured", "  if (done) done = check_copies(*bench, calibration.thread_count);\n", "", "Measure.RefusesCopiesThatDeliverOtherBytes"),
        ("calibration_median_of_an_even_count", "samples.size() / 2);", "(samples.size() - 1) / 2);", "Median.*"),
        ("calibration_any_gain_wins", "constexpr double kMustWinBy = 0.95;", "constexpr double kMustWinBy = 1.0;", "PickKernel.*"),
    ),
    *of("copies", "src/copy/parallel.cpp", "unit_copy")(
        ("parallel_parts_are_not_fenced", "    kernel(mapped, host, bytes);\n    detail::fence_stores();", "    kernel(mapped, host, bytes);", "FenceCount.*"),
        ("parallel_last_part_is_short", "return part == part_count ? bytes : ", "return part == part_count ? bytes - bytes % 2 : ", "ParallelCopy.CopiesEveryByteWithAnyThreadCount"),
    ),

    # --- Figures -------------------------------------------------------------------------------------------------------------------
    *of("figures", "src/streams/measure.cpp", "unit_test")(
        ("figures_median_of_an_even_count", "(samples[middle - 1] + samples[middle]) / 2", "samples[middle]", "StreamMeasure.*"),
        ("figures_p99_of_few_samples", "std::ceil(part * static_cast<double>(samples_us.size()))", "std::floor(part * static_cast<double>(samples_us.size()))", "StreamMeasure.*"),
        ("figures_overlap_of_the_longest", "shortest_ns = std::min(shortest_ns, end - begin);", "shortest_ns = end - begin;", "StreamMeasure.*"),
        ("figures_window_of_the_first", "window.end_ns = std::min(window.end_ns, life->end_ns);", "window.end_ns = life->end_ns;", "StreamMeasure.*"),
    ),
    *of("figures", "tools/gigabar/support/statistics.cpp", "tools_test")(
        ("tools_percentile_rounded_down", "std::ceil(fraction * static_cast<double>(count) - 1e-9)", "std::floor(fraction * static_cast<double>(count))", "Percentile.*"),
        ("tools_median_of_an_even_count", "std::midpoint(values[(values.size() - 1) / 2], values[values.size() / 2])", "values[values.size() / 2]", "Median.*"),
    ),

    # --- Streams -------------------------------------------------------------------------------------------------------------------
    *of("streams", "src/streams/run.cpp", "unit_test")(
        ("streams_wrong_data_pass", "if (Result<void> checked = ends_[run->index]->check(code(), give_up); !checked) told.error = checked.record();", "", "StreamCuda.ALostBitIsToldWithItsPlaceAndTheOthersRunOn"),
    ),
    *of("streams", "src/streams/repeat.cpp", "unit_test")(
        ("streams_one_copy_more", "return begun < transfer.iterations;", "return begun <= transfer.iterations;", "StreamRun.*:StreamCuda.CopyEnginesMoveEverythingBehindOneGate"),
        ("streams_gate_does_not_wait", "while (!is_open() && !is_aborted()) pause();\n  return is_open();", "return true;", "StreamRun.*"),
    ),

    # --- libgdrapi -----------------------------------------------------------------------------------------------------------------
    *of("gdrapi", "src/gdrapi/table.cpp", "unit_test")(
        ("gdrapi_handle_of_any_session", "return is_pinned && slot->session == g ? 0 : EINVAL;", "return is_pinned ? 0 : EINVAL;", "Session.*"),
        ("gdrapi_old_handle_is_good", "slot->handle == handle.h && slot->pin != nullptr", "slot->pin != nullptr", "Pin.*"),
        ("gdrapi_copies_leave_the_mapping", "return fits(offset_bytes, bytes, mapped_bytes_) ? 0 : EINVAL;", "return offset_bytes <= mapped_bytes_ ? 0 : EINVAL;", "Map.*"),
        ("gdrapi_unmaps_any_address", "slot->mapped_bytes.load() == 0 || address != slot->pin->mapping.address()", "slot->mapped_bytes.load() == 0", "Map.*"),
        ("gdrapi_maps_twice", "  if (slot->mapped_bytes.load() != 0) return EAGAIN;\n", "", "Map.*"),
        ("gdrapi_any_type", "  if (required != GDR_MAPPING_TYPE_NONE && required != type_of(mapping)) return EOPNOTSUPP;\n", "", "Map.*"),
    ),
    *of("gdrapi", "src/gdrapi/session.cpp", "unit_test")(
        ("gdrapi_busy_is_an_io_error", "    case Status::busy: return EBUSY;\n", "    case Status::busy: break;\n", "ErrnoOf.*"),
        ("gdrapi_time_out_is_an_io_error", "    case Status::timed_out: return ETIMEDOUT;\n", "    case Status::timed_out: break;\n", "ErrnoOf.*"),
    ),

    # --- Kernels' queues -------------------------------------------------------------------------------------------------------------
    *of("device queues", "src/device/soft_hca/send_queue.cpp", "unit_test")(
        ("softhca_fence_is_open", "if ((request.flags & mlx5::kFenceMask) == 0) return true;", "return true;", "SoftHca.AFenceWaitsForResultsOnly"),
        ("softhca_doorbell_of_another_queue", "if (number != number_ || distance > options_.depth) {", "if (distance > options_.depth) {", "SoftHca.IgnoresDoorbellsThatAreNotItsOwn"),
        ("softhca_goes_on_behind_a_failure", "if (is_broken_) return Syndrome::flushed;", "", "Queue.FlushesWhatIsBehindAFailure:SoftHca.*:MemoryWire.*"),
        ("softhca_record_unread", "if (is_late || record_polls_left_ > 0) {", "if (record_polls_left_ > 0) {", "SoftHca.GoesNoFurtherThanTheRecord"),
        ("softhca_half_arrived_request", "if (device::load_acquire(&block.segments[i].words[mlx5::kTagWord]) != mlx5::sequence_tag(index)) return false;", "", "SoftHca.WaitsForEachSegmentOfATaggedRequest"),
        ("softhca_request_of_another_queue", " && whose >> 8 == queue_number;", ";", "SoftHca.*"),
    ),
    *of("device queues", "src/device/soft_hca/soft_hca.cpp", "unit_test")(
        ("softhca_old_key_is_good", "return ranges_.erase(key) == 1;", "return ranges_.contains(key);", "MemoryTable.*"),
        ("softhca_writes_where_it_may_read", "if (found == ranges_.end() || !includes(found->second.access, wanted)) return nullptr;", "if (found == ranges_.end()) return nullptr;", "MemoryTable.*"),
        ("softhca_writes_beyond_the_range", "fits(offset, bytes, range.bytes)", "(offset < range.bytes)", "MemoryTable.*"),
    ),
    *of("device queues", "src/device/fabric_wire/fabric_wire.cpp", "unit_test")(
        ("fabricwire_key_of_another_peer", "  else if (operation.remote_key >> 10 != options_.peer ||\n           (", "  else if ((", "*WrongPlace.*"),
        ("fabricwire_small_write_overtakes", "  if (has_unsettled_writes_) return false;\n  std::byte* const to", "  std::byte* const to", "*FabricWireTest.*"),
        ("fabricwire_goes_on_behind_a_failure", "  is_broken_ = is_broken_ || syndrome != Syndrome::none;\n", "", "*WrongPlace.*"),
    ),
    *of("device queues", "src/device/session/session.cpp", "fabric_conformance")(
        ("session_kernels_take_what_cpus_take", "    if (found.segments[id].notifies_cpus) continue;\n", "", "*FabricDeviceCpu.TheOtherTakerIsRefused*_2"),
        ("session_shows_other_segments", "    if (!has_segment(id)) continue;\n", "", "*FabricDeviceInput.OfOtherSegments*_2"),
        ("session_cpu_notifies_another_kernel", "layout.notifications_at(segment) + id * sizeof", "layout.notifications_at(segment + 1) + id * sizeof", "*FabricDeviceCpu.KernelsAndCpus*_2"),
    ),
    *of("gaspi", "include/GASPI_Device.hpp", "gaspi_conformance")(
        ("gaspi_kernels_write_nothing_anywhere", "return bytes != 0 && bytes <= device.transfer_size_max", "return bytes <= device.transfer_size_max", "*GaspiKernels.EachWrongArgument*_2"),
    ),
    *of("device queues", "src/device/hca/hca.cpp", "unit_test")(
        ("hca_wrong_word_is_good", "  if (*result != 0) return refuse(", "  if (false) return refuse(", "HcaSession.*"),
        ("hca_does_not_ring_again", "  rung_ = value;\n", "", "HcaSession.IsRungByTheCpuWhenAsked",
         "a doorbell that is rung more often than it must be changes nothing but the time"),
    ),
]

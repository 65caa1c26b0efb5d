// How the ranks agree on a provider. First each says what its libfabric offers; then, in rank 0's order, they open one that all have and
// exchange addresses, until one has worked on every rank. A rank that cannot take part says why instead, so all fail alike and at once.
#include <algorithm>
#include <bit>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/wire.h"
#include "trireme/ccl/fabric/ofi/ofi_lane.h"
#include "trireme/ccl/fabric/ofi/ofi_lane_impl.h"
#include "trireme/ccl/fabric/ofi/ofi_offers.h"

namespace trireme::ccl {
namespace {

constexpr size_t kMaxOffers = 64;
constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxAddressBytes = 4096;
// More pieces than this per peer and direction (of 64 KiB and up) do not make it faster.
constexpr size_t kMaxWindow = 32;

[[noreturn]] void throw_unsupported(const std::string& reason) {
  throw Unsupported(str("TRIREME_FABRIC=ofi: ", reason, "; or use TRIREME_FABRIC=tcp"));
}

std::vector<std::string> provider_names(const std::vector<OfiOffer>& offers) {
  std::vector<std::string> names;
  for (const OfiOffer& offer : offers) {
    if (std::find(names.begin(), names.end(), offer.provider) == names.end()) names.push_back(offer.provider);
  }
  return names;
}

// What a rank's libfabric offers, or why there is nothing.
struct OffersCard {
  std::string reason;
  std::vector<OfiOffer> offers;

  std::string encode() const {
    wire::Writer writer;
    writer.string(reason.substr(0, kMaxTextBytes));
    size_t count = std::min(offers.size(), kMaxOffers);
    writer.integer(static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) {
      writer.string(offers[i].provider);
      writer.integer(offers[i].address_format);
      writer.integer(offers[i].protocol);
    }
    return writer.take();
  }
  static OffersCard decode(const std::string& bytes) {
    wire::Reader reader(bytes);
    OffersCard card;
    card.reason = wire::printable(reader.string(kMaxTextBytes), kMaxTextBytes);
    uint32_t count = reader.integer<uint32_t>();
    if (count > kMaxOffers) throw wire::Malformed("too many providers");
    for (uint32_t i = 0; i < count; ++i) {
      OfiOffer& offer = card.offers.emplace_back();
      offer.provider = wire::printable(reader.string(kMaxTextBytes), kMaxTextBytes);
      offer.address_format = reader.integer<uint32_t>();
      offer.protocol = reader.integer<uint32_t>();
    }
    reader.expect_end();
    return card;
  }
  bool has(const OfiOffer& wanted) const {
    return std::any_of(offers.begin(), offers.end(), [&](const OfiOffer& offer) { return offer.matches(wanted); });
  }
  std::string providers() const {
    std::string text;
    for (const std::string& name : provider_names(offers)) text += (text.empty() ? "" : ", ") + name;
    return text;
  }
};

// A rank's open endpoint, or why it did not open.
struct EndpointCard {
  std::string reason;
  std::string address;
  uint64_t max_message_bytes = 0;
  uint32_t tag_bits = 0;

  std::string encode() const {
    wire::Writer writer;
    writer.string(reason.substr(0, kMaxTextBytes));
    writer.string(address);
    writer.integer(max_message_bytes);
    writer.integer(tag_bits);
    return writer.take();
  }
  static EndpointCard decode(const std::string& bytes) {
    wire::Reader reader(bytes);
    EndpointCard card;
    card.reason = wire::printable(reader.string(kMaxTextBytes), kMaxTextBytes);
    card.address = reader.string(kMaxAddressBytes);
    card.max_message_bytes = reader.integer<uint64_t>();
    card.tag_bits = reader.integer<uint32_t>();
    reader.expect_end();
    return card;
  }
};

class ProviderMeeting {
 public:
  ProviderMeeting(Control& control, const std::vector<int>& hosts, Deadline deadline, const detail::OfiOptions& options)
      : control_(control), hosts_(hosts), deadline_(deadline), options_(options) {}

  std::unique_ptr<BulkLane> hold() {
    std::vector<OffersCard> offers = exchange_offers();
    std::string trouble = no_common_provider(offers);
    for (const OfiOffer& candidate : offers[0].offers) {
      bool common = std::all_of(offers.begin(), offers.end(), [&](const OffersCard& card) { return card.has(candidate); });
      if (!common) continue;
      if (auto lane = try_offer(candidate, trouble)) return lane;
      log(LogLevel::info, str("libfabric: provider ", candidate.provider, " did not work: ", trouble));
    }
    throw_unsupported(trouble);
  }

 private:
  std::vector<OffersCard> exchange_offers() {
    try {
      library_ = std::make_unique<OfiLibrary>(options_.library);
      mine_.offers = find_ofi_offers(*library_, options_.provider, control_.my_address());
    } catch (const Unsupported& error) {
      mine_.reason = error.what();
    }
    std::vector<OffersCard> cards;
    for (const std::string& bytes : control_.allgather(mine_.encode(), deadline_)) cards.push_back(OffersCard::decode(bytes));
    for (size_t rank = 0; rank < cards.size(); ++rank) {
      if (!cards[rank].reason.empty()) throw_unsupported(str("rank ", rank, ": ", cards[rank].reason));
    }
    return cards;
  }

  static std::string no_common_provider(const std::vector<OffersCard>& cards) {
    std::string text = "the ranks have no libfabric provider in common (";
    for (size_t rank = 0; rank < cards.size() && rank < 4; ++rank) text += str(rank ? "; " : "", "rank ", rank, ": ", cards[rank].providers());
    return text + "); FI_PROVIDER chooses one";
  }

  // Null, with the reason in `trouble`, when it does not work on every rank.
  std::unique_ptr<BulkLane> try_offer(const OfiOffer& candidate, std::string& trouble) {
    std::unique_ptr<OfiEndpoint> endpoint;
    EndpointCard mine;
    try {
      auto offer = std::find_if(mine_.offers.begin(), mine_.offers.end(), [&](const OfiOffer& other) { return other.matches(candidate); });
      endpoint = std::make_unique<OfiEndpoint>(*library_, std::move(offer->info));
      mine.address = endpoint->address();
      mine.max_message_bytes = std::min<uint64_t>(endpoint->info().ep_attr->max_msg_size, options_.max_message_bytes);
      mine.tag_bits = static_cast<uint32_t>(endpoint->tag_bits());
    } catch (const IoError& error) {
      mine.reason = error.what();
    }
    std::vector<EndpointCard> cards;
    for (const std::string& bytes : control_.allgather(mine.encode(), deadline_)) cards.push_back(EndpointCard::decode(bytes));
    for (size_t rank = 0; rank < cards.size(); ++rank) {
      if (cards[rank].reason.empty()) continue;
      trouble = str("rank ", rank, ": ", cards[rank].reason);
      return nullptr;
    }
    OfiLaneShape shape = shape_of(cards);
    shape.window = window_of(*endpoint);
    if (shape.tag_bits < kPieceBits + shape.rank_bits + kMinIdBits || shape.piece_bytes == 0) {
      trouble = str("provider ", candidate.provider, " has tags of only ", shape.tag_bits, " bits");
      return nullptr;
    }
    std::vector<fi_addr_t> peers = insert_peers(*endpoint, cards);
    return std::make_unique<OfiLane>(std::move(endpoint), shape, std::move(peers));
  }

  OfiLaneShape shape_of(const std::vector<EndpointCard>& cards) const {
    OfiLaneShape shape;
    shape.rank = control_.rank();
    shape.rank_bits = std::bit_width(static_cast<unsigned>(control_.size() - 1));
    shape.piece_bytes = options_.max_message_bytes;
    shape.register_memory = options_.register_memory;
    for (const EndpointCard& card : cards) {
      shape.piece_bytes = std::min<size_t>(shape.piece_bytes, card.max_message_bytes);
      shape.tag_bits = std::min(shape.tag_bits, static_cast<int>(card.tag_bits));
    }
    return shape;
  }

  // A share of the provider's queues for each peer.
  size_t window_of(const OfiEndpoint& endpoint) const {
    int here = hosts_[static_cast<size_t>(control_.rank())];
    auto peers = static_cast<size_t>(std::count_if(hosts_.begin(), hosts_.end(), [&](int host) { return host != here; }));
    size_t queue = std::min(endpoint.info().tx_attr->size, endpoint.info().rx_attr->size);
    return std::clamp(queue / std::max<size_t>(peers, 1), size_t{1}, kMaxWindow);
  }

  std::vector<fi_addr_t> insert_peers(OfiEndpoint& endpoint, const std::vector<EndpointCard>& cards) const {
    std::vector<fi_addr_t> peers(cards.size(), FI_ADDR_UNSPEC);
    for (size_t peer = 0; peer < cards.size(); ++peer) {
      if (hosts_[peer] != hosts_[static_cast<size_t>(control_.rank())]) peers[peer] = endpoint.insert(cards[peer].address);
    }
    return peers;
  }

  Control& control_;
  const std::vector<int>& hosts_;
  Deadline deadline_;
  const detail::OfiOptions& options_;
  std::unique_ptr<OfiLibrary> library_;
  OffersCard mine_;
};

}  // namespace

std::unique_ptr<BulkLane> connect_ofi_lane(Control& control, const std::vector<int>& hosts, Deadline deadline) {
  return detail::connect_ofi_lane(control, hosts, deadline, {});
}

std::vector<std::string> ofi_providers() {
  const detail::OfiOptions options;
  const std::vector<std::string> addresses = local_addresses();
  const OfiLibrary library(options.library);
  return provider_names(find_ofi_offers(library, options.provider, addresses.empty() ? "" : addresses.front()));
}

std::unique_ptr<BulkLane> detail::connect_ofi_lane(Control& control, const std::vector<int>& hosts, Deadline deadline,
                                                   const OfiOptions& options) {
  return ProviderMeeting(control, hosts, deadline, options).hold();
}

}  // namespace trireme::ccl
